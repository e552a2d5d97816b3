package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionComesFromTheBuild(t *testing.T) {
	for recorded, want := range map[string]string{
		"v1.2.3":        "1.2.3",
		"v1.2.3-rc.1":   "1.2.3-rc.1",
		"v1.2.3+dirty":  "1.2.3+dirty",
		"(devel)":       unreleased,
		"":              unreleased,
		"v0.0.0-2026-0": "0.0.0-2026-0",
	} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: recorded}}); got != want {
			t.Errorf("%q: version %s, want %s", recorded, got, want)
		}
	}
	if got := versionOf(nil); got != unreleased {
		t.Errorf("without build information: %s, want %s", got, unreleased)
	}
}
