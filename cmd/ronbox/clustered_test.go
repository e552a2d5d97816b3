package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/store"
)

// A node that `init --start` serves becomes a cluster of one and a node alone again, in one process.
func TestClusterOfInitStart(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	made := newBox(t)
	b := &box{dir: made.dir + "2", env: append(slices.Clone(made.env),
		"RONBOX_SERVER__BIND="+hosttest.FreeAddr(t), "RONBOX_CLUSTER__BIND="+hosttest.FreeAddr(t))}
	t.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	p := b.prepare()
	p.cmd.Args = append(p.cmd.Args[:1], b.args("init", "--dev", "--start")...)
	b.run(t, p)
	b.awaitReady(t, p)
	must(t, nil, b.args("cluster", "init", "--json")...)
	until(t, "it leads", func() bool { return ronbox(t, b.args("cluster", "token", "--json")...).code == cli.ExitDone })
	must(t, nil, b.args("cluster", "leave", "--last", "--json")...)
	b.awaitReady(t, p)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone || strings.Count(p.stderr.String(), "console\n") != 1 {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

// The verbs that write to the file of a stopped node refuse that of a clustered one, and say what
// to do. Those that read it, and its compaction, work as ever.
func TestClusteredFile(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	file := filepath.Join(b.dir, config.DatabaseName)
	snapshot := filepath.Join(t.TempDir(), "copy.db")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshot, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.SetMembership(file, &store.Membership{
		Index:   1,
		Raw:     []byte("one voter"),
		Applied: store.Applied{Place: store.Place{Index: 1, Term: 1}, Origin: "init"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		verb []string
		code int
	}{
		{[]string{"token", "mint", "--offline", "--scope", "wallet.read"}, cli.ExitConfig},
		{[]string{"db", "migrate"}, cli.ExitConfig},
		{[]string{"db", "restore", snapshot, "--yes"}, cli.ExitConfig},
		{[]string{"ledger", "rebuild"}, cli.ExitConfig},
		{[]string{"db", "info"}, cli.ExitDone},
		{[]string{"db", "check"}, cli.ExitDone},
		{[]string{"db", "export"}, cli.ExitDone},
		{[]string{"db", "compact"}, cli.ExitDone},
	} {
		r := ronbox(t, b.args(tt.verb...)...)
		said := strings.Contains(r.stderr, "belongs to a cluster") &&
			strings.Contains(r.stderr, "`ronbox cluster leave --last`")
		if r.code != tt.code || said != (tt.code == cli.ExitConfig) {
			t.Errorf("%v: exit %d\n%s", tt.verb, r.code, r.stderr)
		}
	}
	if m, err := store.ReadMembership(file); err != nil || m == nil {
		t.Errorf("after all of them: %+v, %v", m, err)
	}
}
