package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A reload reads the file again; the variables that the node was started with stay, and those of who asks are not its.
func TestDiffRunningIsWhatAReloadDoes(t *testing.T) {
	b := newBox(t)
	b.start(t) // with a bind and a level of its own environment
	t.Setenv("RONBOX_REGISTRY__LIMITS__RPS", "7")
	changes := func() []string {
		var d configDelta
		must(t, &d, b.args("config", "diff", "running", "--json")...)
		out := []string{}
		for _, c := range d.Changes {
			out = append(out, c.Key+" "+c.From+" "+c.To)
		}
		return out
	}
	if got := changes(); len(got) != 0 {
		t.Errorf("nothing was changed, and a reload would change %q", got)
	}
	file := filepath.Join(b.dir, "ronbox.toml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(raw, []byte("#openmetrics = false"), []byte("openmetrics = true"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := changes(); len(got) != 1 || got[0] != "metrics.openmetrics false true" {
		t.Errorf("changes = %q", got)
	}
}
