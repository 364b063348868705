# The image of every service and of the command: `docker build -t koordstream .`
#
# EXTRAS says what is in it. One image for a development machine carries them all; on a cluster each service has its own:
#
#     docker build --build-arg EXTRAS=scheduler -t koordstream-scheduler .
#
# PYTHON_IMAGE is any image with a python3 of 3.11 or later and its venv module, the same for both stages: the environment
# refers to the interpreter by its path.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=gateway,scheduler,quota-ledger,slo-controller,descheduler,simulator,metrics-ingest,action-ingest,device-discovery,audit,node-agent,devices,runtime-proxy,cli
WORKDIR /src
RUN python3 -m venv /opt/koord
# What changes seldom comes first: a changed service is then a matter of seconds.
COPY pyproject.toml README.md LICENSE ./
RUN /opt/koord/bin/python -c "import tomllib; found = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    print('\n'.join(found['dependencies'] + [one for extra in '${EXTRAS}'.split(',') if extra \
    for one in found['optional-dependencies'][extra]]))" > /tmp/requirements \
    && /opt/koord/bin/pip install --no-cache-dir --requirement /tmp/requirements
COPY shared shared
COPY services services
COPY migrations migrations
COPY cli cli
RUN /opt/koord/bin/pip install --no-cache-dir --no-deps . \
    && /opt/koord/bin/pip uninstall --yes --quiet pip

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/koord /opt/koord
# Folders for volumes: an empty volume takes its mode from here, so that whoever the containers run as may write there.
RUN mkdir -p /data /var/lib/postgresql /var/lib/koord-node-agent \
    && chmod 1777 /data /var/lib/postgresql /var/lib/koord-node-agent
# No account by name is needed: a number is enough, and Kubernetes can check that it is not 0.
USER 10001:10001
WORKDIR /tmp
# The scheduler compiles its passes over nodes at the first start (docs/adr/0021): with a read-only root, /tmp is what can be written.
ENV PATH=/opt/koord/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/tmp/numba
ENTRYPOINT ["koord"]
