package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/unit"
)

var ranged = regexp.MustCompile(`(-?[0-9][0-9a-zA-Z.]*)\.\.(-?[0-9][0-9a-zA-Z.]*)`)

// bound reads one end of a range that a fault prints.
func bound(t *rapid.T, text string) float64 {
	if d, err := unit.ParseDuration(text); err == nil {
		return float64(d)
	}
	if z, err := unit.ParseSize(text); err == nil {
		return float64(z)
	}
	var f float64
	if _, err := fmt.Sscan(text, &f); err != nil {
		t.Fatalf("no bound: %q", text)
	}
	return f
}

// Whatever values keys have, each fault names a key and its place, and a range it prints holds something.
func TestFaultsMakeSense(t *testing.T) {
	keys := leaves(Default())
	rapid.Check(t, func(rt *rapid.T) {
		var env []string
		for range rapid.IntRange(1, 4).Draw(rt, "keys") {
			key := rapid.SampledFrom(keys).Draw(rt, "key").key
			env = append(env, envName(key)+"="+rapid.SampledFrom([]string{
				"0", "-1", "1", "2", "7", "2147483648", "9223372036854775807", "0s", "1ns", "3s", "9999d", "1B", "1KiB", "9000TiB", "true", "",
			}).Draw(rt, "value"))
		}
		_, err := Load(LoadOptions{DataDir: "/d", Env: env})
		for _, f := range Faults(err) {
			if find(keys, f.Key) == nil || f.Where == "" || f.Reason == "" {
				rt.Fatalf("%v: a fault without a place: %+v", env, f)
			}
			for _, ends := range ranged.FindAllStringSubmatch(f.Reason, -1) {
				if bound(rt, ends[1]) > bound(rt, ends[2]) {
					rt.Fatalf("%v: %v", env, f)
				}
			}
		}
	})
}

// Whatever words are put around it, an error gives all its faults.
func TestFaultsOfWrappedErrors(t *testing.T) {
	_, err := Load(LoadOptions{File: write(t, "a = 1\nb = 2\n[zebra]\n")})
	for _, wrapped := range []error{err, fmt.Errorf("start: %w", err), fmt.Errorf("%w: %w", fs.ErrInvalid, err), errors.Join(fs.ErrInvalid, fmt.Errorf("x: %w", err))} {
		if got := Faults(wrapped); len(got) != 3 || got[0].Key != "a" || got[2].Key != "zebra" {
			t.Errorf("%v gives %v", wrapped, got)
		}
	}
	if got := Faults(nil); got != nil {
		t.Error(got)
	}
}

// Rules between keys.
func TestRulesBetweenKeys(t *testing.T) {
	for _, tt := range []struct{ doc, file, want string }{
		{"a body that unfolds to less than it may be", "[server]\nmax_body_bytes = \"20MiB\"\n", "server.decompress_abs_bytes"},
		{"a token that lives longer than any may", "[auth]\nmax_ttl = \"30m\"\n", "auth.default_ttl"},
		{"memory that is kept", "[amnesia]\nenabled = true\n[store]\nsnapshot_every = \"15m\"\n", `ronbox.toml:4:1: store.snapshot_every = "15m": must be 0s while`},
		{"TLS without a certificate", "[tls]\nenabled = true\nkey_path = \"k\"\n", "tls.cert_path"},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		if f := Faults(err); len(f) != 1 || !strings.Contains(f[0].Error(), tt.want) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}

// A fault in a list or a table names the element, and one that is too long ends the reading.
func TestFaultsInside(t *testing.T) {
	for _, tt := range []struct{ doc, file, want string }{
		{"an element", "[uds]\nallow_uids = [1, -2]\n", ":2:1: uds.allow_uids = [1, -2]: element 1 is out of range"},
		{"a member", "[uds.map]\n\"uid:5\" = \"all\"\n", `:2:1: uds.map = {"uid:5" = "all"}: member "uid:5" must be a list`},
		{"a dotted member", "uds.map.\"uid:4\" = []\nuds.map.\"uid:5\" = [5]\n", `:2:9: uds.map = {"uid:4" = [], "uid:5" = [5]}: member "uid:5" element 0 must be a quoted string`},
		{"a peer that is none", "uds.map.\"pid:5\" = []\n", "must be uid:<number> or gid:<number>"},
		{"a table of tables", "[[uds]]\n", "is a section"},
		{"a file that is none", strings.Repeat("#", maxFile+1), "is larger than 1MiB"},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		if f := Faults(err); len(f) != 1 || !strings.Contains(f[0].Error(), tt.want) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}
