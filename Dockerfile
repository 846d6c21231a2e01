# The app as a container: docker build -t mergescope . && docker compose up (see docs/serving.md).
# The first stage installs and compiles; the second holds what runs: no compiler, no cache, no tests.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv --without-pip /opt/venv
WORKDIR /app
COPY requirements.txt requirements-container.txt ./
RUN python -m pip --python /opt/venv/bin/python install --no-deps --require-hashes -r requirements-container.txt
RUN python -m pip --python /opt/venv/bin/python install -r requirements.txt
COPY LICENSE CITATION.md ./
COPY sample_data sample_data
COPY viz viz
COPY merging merging
COPY app app
# The root is read-only when it runs, so bytecode is made now. Sources' times are not part of it, for equal images.
# What torch brings for its own tests is left out: some of it is in the syntax of a newer Python.
RUN /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/torch/testing/_internal/' \
    /opt/venv/lib app merging viz

FROM python:${PYTHON}
RUN useradd --uid 1000 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin mergescope \
 && install -d -o mergescope -g mergescope -m 700 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
USER 1000:1000
VOLUME /data
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/data \
    MERGESCOPE_STORE=/data/store \
    MERGESCOPE_MODE=class \
    MALLOC_ARENA_MAX=2 \
    OMP_WAIT_POLICY=PASSIVE \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_BROWSER_SERVER_ADDRESS=localhost \
    STREAMLIT_SERVER_PORT=8501
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['STREAMLIT_SERVER_PORT']}/_stcore/health\", timeout=4)"]
# The server stops the job under way, which keeps what it can, and ends.
STOPSIGNAL SIGTERM
CMD ["python", "-m", "app.serve"]
