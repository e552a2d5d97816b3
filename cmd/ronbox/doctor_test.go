package main

import (
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/host"
)

// doctor looks at everything the node needs, and its exit code is that of the worst it finds.
func TestDoctor(t *testing.T) {
	b := newBox(t)
	for _, running := range []bool{false, true} {
		if running {
			b.start(t)
		}
		r := cli(t, b.args("doctor", "--json")...)
		var doc doctorDoc
		decode(t, r.stdout, &doc)
		seen := map[string]host.Finding{}
		worst := host.OK
		for _, f := range doc.Findings {
			seen[f.Check] = f
			if (f.Advice == "") != (f.Level == host.OK) {
				t.Errorf("%s is %s, its advice %q", f.Check, f.Level, f.Advice)
			}
			if f.Level == host.Bad {
				worst = host.Bad
			}
		}
		if bad := worst == host.Bad; doc.OK == bad || (r.code == exitBad) != bad || (r.code == exitDone) == bad {
			t.Errorf("the worst is %s, ok is %t, exit %d", worst, doc.OK, r.code)
		}
		for _, check := range []string{"config", "node", "port", "data_dir", "file_system", "disk_space", "disk_sync", "kernel", "clock", "swap", "memory", "open_files", "cpu", "somaxconn"} {
			if seen[check].Seen == "" {
				t.Errorf("nothing is said of %s", check)
			}
		}
		if got := strings.HasPrefix(seen["node"].Seen, "runs"); got != running {
			t.Errorf("a node runs: %t; doctor says %q", running, seen["node"].Seen)
		}
		human := cli(t, b.args("doctor")...)
		if strings.Count(human.stdout, "\n") < len(doc.Findings) {
			t.Errorf("a person is shown less:\n%s", human.stdout)
		}
	}
}

// A faulty configuration is a finding like any other: the rest is looked at all the same.
func TestDoctorOfABadConfiguration(t *testing.T) {
	t.Setenv("RONBOX_SERVER__BIND", "nonsense")
	var doc doctorDoc
	r := cli(t, "--data-dir", filepath.Join(t.TempDir(), "none"), "doctor", "--json")
	if decode(t, r.stdout, &doc); r.code != exitBad || len(doc.Findings) < 10 || doc.Findings[0].Level != host.Bad || !strings.Contains(doc.Findings[0].Seen, "server.bind") {
		t.Errorf("exit %d, %+v", r.code, doc)
	}
}
