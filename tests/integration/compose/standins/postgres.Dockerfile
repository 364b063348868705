# Stands in for the image `postgres` where no registry is reachable: Debian's server (the wheel's has no TLS) behind the same
# entry point, as far as compose.yaml uses it.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-15 && rm -rf /var/lib/apt/lists/*
COPY entrypoint.sh /usr/local/bin/docker-entrypoint.sh
# initdb needs a name for its user; the published image gives any user one, through nss_wrapper.
RUN echo koord:x:10001:10001::/tmp:/bin/false >> /etc/passwd
RUN mkdir -p /docker-entrypoint-initdb.d && install -d -m 1777 /var/lib/postgresql /var/run/postgresql
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
