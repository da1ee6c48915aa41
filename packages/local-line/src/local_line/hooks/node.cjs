// In a Node bot that `local-line run` has started: LINE's hosts lead to the local LINE.
// Node's fetch and most clients look at no proxy. The CA is trusted by NODE_EXTRA_CA_CERTS.
"use strict";
const tls = require("tls");

const hosts = new Set((process.env.LOCAL_LINE_HOSTS || "").split(" ").filter(Boolean));
const connect = tls.connect;

tls.connect = function (options, ...rest) {
  if (options && typeof options === "object" && !options.socket) {
    const name = options.host || options.hostname || options.servername;
    if (hosts.has(name)) {
      const port = Number(process.env.LOCAL_LINE_TLS_PORT);
      const servername = options.servername || name;
      options = { ...options, host: "127.0.0.1", hostname: "127.0.0.1", port, servername };
    }
  }
  return connect.call(this, options, ...rest);
};
