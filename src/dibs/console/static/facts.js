// What the server, or each node of a cluster, says about itself.

import { $, bytes, clock, el, long, number, seconds, write } from "./dom.js";

const WORDS = {
  server_name: "Program", redis_version: "Redis version", valkey_version: "Valkey version", redis_mode: "Mode", os: "System", role: "Role",
  uptime_in_seconds: "Running for", connected_clients: "Clients", blocked_clients: "Blocked clients", maxclients: "Most clients", tracking_clients: "Clients with tracking",
  used_memory: "Memory used", used_memory_peak: "Memory used at most", maxmemory: "Memory limit", maxmemory_policy: "Eviction policy",
  evicted_keys: "Keys evicted", expired_keys: "Keys expired", instantaneous_ops_per_sec: "Commands per second", total_commands_processed: "Commands in all",
  keyspace_hits: "Keys found", keyspace_misses: "Keys not found", rejected_connections: "Connections rejected", connected_slaves: "Replicas",
  master_link_status: "Link to the master", min_slaves_good_slaves: "Replicas that keep up", aof_enabled: "Append-only file", rdb_last_bgsave_status: "Last snapshot",
  rdb_last_save_time: "Last snapshot at", loading: "Loading its data", cluster_enabled: "Cluster",
};
const BYTES = new Set(["used_memory", "used_memory_peak", "maxmemory"]);
const SWITCH = new Set(["aof_enabled", "loading", "cluster_enabled"]);

function told(name, value) {
  if (name === "maxmemory" && value === "0") return "none";
  if (BYTES.has(name)) return bytes(Number(value));
  if (SWITCH.has(name)) return value === "0" ? "no" : "yes";
  if (name === "uptime_in_seconds") return long(Number(value));
  if (name === "rdb_last_save_time") return clock(Number(value));
  return /^\d+$/.test(value) ? number(Number(value)) : value;
}

// A policy that may drop leases before they end, or a node that is about to forget them.
function worry(name, value, facts) {
  if (name === "maxmemory_policy") return value !== "noeviction" && facts.maxmemory !== "0" ? "may drop leases before they end" : "";
  if (name === "evicted_keys") return value !== "0" ? "some may have been leases" : "";
  if (name === "master_link_status") return value !== "up" ? "this replica is cut off" : "";
  if (name === "rdb_last_bgsave_status") return value !== "ok" ? "see the server's log" : "";
  return "";
}

export function drawFacts(state) {
  const { nodes, facts_took: took } = state.server;
  if (!nodes.length && state.server.sweep) write($("facts-lede"), "The server says nothing about itself to this user: its ACL has no INFO.");
  if (!nodes.length) return;
  write($("facts-lede"), `As the server says about itself (INFO), answered in ${seconds(took)}.`);
  const box = $("nodes");
  while (box.children.length > nodes.length) box.lastChild.remove();
  nodes.forEach((node, place) => {
    const part = box.children[place] ?? box.appendChild(el("section", { className: "strip" }, el("h2"), el("dl", { className: "facts" })));
    write(part.firstChild, node.address || state.target);
    drawNode(part.lastChild, node.facts);
  });
}

function drawNode(list, facts) {
  const names = Object.keys(WORDS).filter((name) => name in facts && !(name === "redis_version" && "valkey_version" in facts));
  while (list.children.length > names.length) list.lastChild.remove();
  names.forEach((name, place) => {
    const line = list.children[place] ?? list.appendChild(el("div", {}, el("dt"), el("dd"), el("dd", { className: "fact" })));
    const why = worry(name, facts[name], facts);
    write(line.children[0], WORDS[name]);
    write(line.children[1], told(name, facts[name]));
    write(line.children[2], why);
    line.classList.toggle("alarming", why !== "");
  });
}
