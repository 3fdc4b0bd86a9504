#!/bin/sh
# numba writes where it reads its cache, and the root is read-only: what the build compiled is copied to the tmpfs.
set -eu
mkdir -p "$NUMBA_CACHE_DIR"
cp -Rp /opt/stream-agg/numba/. "$NUMBA_CACHE_DIR"
exec stream-agg "$@"
