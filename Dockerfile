# syntax=docker/dockerfile:1
# The image of the agent and the descheduler. `make image` builds it; manifests/ says how it is run.
#
# Two stages: the first has pip and a build system, the second has the interpreter, the packages that are needed at run
# time (each checked by its hash in requirements.txt) and our wheel, all compiled to bytecode, since the root file system
# of a running container is read-only.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /build && /build/bin/pip install --quiet --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY koordlite koordlite
COPY descheduler descheduler
COPY scripts/runtime-requirements scripts/install-tree scripts/compile-tree scripts/
RUN scripts/install-tree /build/bin/python /opt/koordlite

FROM python:${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="koordlite" \
      org.opencontainers.image.description="Co-location agent for Kubernetes nodes, and its descheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/koordlite /opt/koordlite
ENV PATH=/opt/koordlite/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The base image has no bytecode of the standard library: each start would compile it, and keep 1.4 MiB of that.
RUN --mount=type=bind,from=build,source=/src/scripts,target=/scripts python /scripts/compile-tree --stdlib
# Nobody, unless a manifest says otherwise: the agent's does, since cgroup files belong to root.
USER 65532:65532
CMD ["koordlite", "--help"]
