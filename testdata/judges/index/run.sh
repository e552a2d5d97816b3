#!/bin/sh
# boxo's Delegated Routing client and server against this ronbox, both ways.
set -e
cd "$(dirname "$0")"
exec go test -count=1 -v ./...
