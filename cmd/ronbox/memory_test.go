package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
)

// A node in memory mode never opens a path for writing: the test starts it under strace, reads,
// writes and stops it.
func TestMemoryModeWritesNoFile(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	strace := hosttest.Tool(t, "strace", "strace")
	b := newBox(t) // its directory holds the configuration and the socket; its database must not change
	db := filepath.Join(b.dir, "ronbox.db")
	was, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "RONBOX_AMNESIA__ENABLED=true", "RONBOX_AMNESIA__ALLOW_SWAP=true",
		"RONBOX_REGISTRY__ORIGIN=registry.example/memory")
	trace := filepath.Join(t.TempDir(), "trace")
	p := b.prepare()
	p.cmd.Args = append(
		[]string{
			strace,
			"-f",
			"-qq",
			"-s",
			"4096",
			"-e",
			"trace=open,openat,openat2,creat,truncate",
			"-o",
			trace,
			"--",
		},
		p.cmd.Args...)
	p.cmd.Path = strace
	b.run(t, p)
	// strace does not forward signals to the node
	stop := func() result { return ronboxIn(t, context.Background(), "", b.args("drain")...) }
	t.Cleanup(func() { stop() })
	b.awaitReady(t, p)
	b.useInMemory(t)
	if r := stop(); r.code != cli.ExitDone {
		t.Fatalf("drain: exit %d\n%s", r.code, r.stderr)
	}
	<-p.done
	if p.code() != cli.ExitDone {
		t.Errorf("exit %d\n%s", p.code(), p.stderr)
	}
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	opened, written := openedPaths(string(raw))
	if !slices.ContainsFunc(opened, func(path string) bool { return strings.HasSuffix(path, "ronbox.toml") }) {
		t.Errorf("the trace is not that of a node: it opened %v", opened)
	}
	if len(written) > 0 {
		t.Errorf("opened for writing:\n%s", strings.Join(written, "\n"))
	}
	if now, err := os.ReadFile(db); err != nil || !bytes.Equal(now, was) {
		t.Errorf("the database file has changed: %v", err)
	}
}

// useInMemory sends requests to the node: reads, tokens, a genesis, a version of a new registry,
// and requests that it must refuse.
func (b *box) useInMemory(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	key, genesis := filepath.Join(dir, "a.key"), filepath.Join(dir, "genesis.json")
	var made struct {
		Public string `json:"public_key"`
	}
	must(t, &made, "registry", "keygen", "--signer-id", "org:test#a", "--out", key, "--json")
	must(t, nil, "registry", "genesis", "--origin", "registry.example/memory", "--signer", "org:test#a="+made.Public,
		"--out", genesis)
	must(t, nil, b.args("registry", "init", "--payload", genesis, "--key", key)...)
	must(t, nil, b.args("registry", "apply", states(t)[0], "--key", key)...)
	must(t, nil, b.args("registry", "head")...)
	must(t, nil, b.args("token", "mint", "--scope", "node.metrics")...)
	must(t, nil, b.args("key", "rotate")...)
	must(t, nil, b.args("audit", "verify")...)
	must(t, nil, b.args("db", "stats")...)
	must(t, nil, b.args("status")...)
	for _, verb := range [][]string{{"db", "snapshot", dir}, {"db", "check"}} {
		if r := ronbox(t, b.args(verb...)...); r.code != cli.ExitFailed || !strings.Contains(r.stderr, "in memory") {
			t.Errorf("%v: exit %d, %s%s", verb, r.code, r.stdout, r.stderr)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "ronbox.toml"), nil, 0o600); err != nil { // a reload only reads it
		t.Fatal(err)
	}
	_ = ronbox(t, b.args("config", "reload")...)
}

var openCall = regexp.MustCompile(`\b(open|openat|openat2|creat|truncate)\(([^"]*)"([^"]*)"(.*)`)

// openedPaths returns all paths of a trace, and the calls that open a path of a file system for
// writing. A memfd has no such path; a path in /proc/self/fd refers to an open memfd.
func openedPaths(trace string) (all, written []string) {
	for line := range strings.Lines(trace) {
		m := openCall.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		call, path, flags := m[1], m[3], m[4]
		all = append(all, path)
		writes := call == "creat" || call == "truncate" ||
			regexp.MustCompile(`O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE`).MatchString(flags)
		if writes && path != "/dev/null" && !strings.HasPrefix(path, "/proc/self/fd/") {
			written = append(written, strings.TrimSpace(line))
		}
	}
	return all, written
}

// openedPaths finds every kind of call that opens a file for writing.
func TestOpenedPaths(t *testing.T) {
	all, written := openedPaths(`7 openat(AT_FDCWD, "/a", O_RDONLY|O_CLOEXEC) = 3
7 openat(AT_FDCWD, "/b", O_RDWR|O_CREAT|O_CLOEXEC, 0600 <unfinished ...>
8 openat(AT_FDCWD, "/dev/null", O_RDWR|O_CLOEXEC) = 4
8 openat2(AT_FDCWD, "/c", {flags=O_WRONLY, resolve=0}, 24) = 5
8 creat("/d", 0600) = 5
9 openat(7, "/proc/self/fd/9", O_RDWR) = 5
`)
	if len(all) != 6 || len(written) != 3 {
		t.Errorf("opened %q, written %q", all, written)
	}
}
