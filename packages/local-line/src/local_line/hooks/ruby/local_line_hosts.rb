# frozen_string_literal: true

# In a Ruby bot that `local-line run` has started: LINE's hosts lead to the local LINE.
# Net::HTTP does not read HTTPS_PROXY. The CA is trusted by SSL_CERT_FILE.
require "socket"

module LocalLineHosts
  NAMES = ENV.fetch("LOCAL_LINE_HOSTS", "").split.freeze

  def self.address(host, port)
    return [host, port] unless NAMES.include?(host) && ["443", "https"].include?(port.to_s)

    ["127.0.0.1", ENV.fetch("LOCAL_LINE_TLS_PORT").to_i]
  end

  # Both are used, depending on the version of Net::HTTP.
  module Connect
    def tcp(host, port, *rest, **named, &block)
      super(*LocalLineHosts.address(host, port), *rest, **named, &block)
    end
  end

  module Open
    def initialize(host, port = nil, *rest, **named)
      super(*LocalLineHosts.address(host, port), *rest, **named)
    end
  end
end

Socket.singleton_class.prepend(LocalLineHosts::Connect)
TCPSocket.prepend(LocalLineHosts::Open)
