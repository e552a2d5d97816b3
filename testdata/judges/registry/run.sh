#!/bin/sh
# Lets tessera's fsck, sumdb/note and transparency-dev/merkle check a log that this tree's ronbox has written.
set -eu
cd "$(dirname "$0")"
exec go test -count=1 -timeout 10m ./...
