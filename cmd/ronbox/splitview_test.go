package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
)

// copyDir copies the files of a folder to another folder.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := filepath.Walk(to, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			err = os.Chmod(path, 0o600)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A copy of a node that is restored from an older snapshot, with all keys and the high-water mark,
// never creates a second log of the same name. It serves reads and refuses to sign or commit until
// it has received the missing entries.
func TestSplitView(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	files := states(t)
	must(t, nil, b.args(append([]string{"registry", "apply", "-q", "--key", b.key}, files[:4]...)...)...)
	var snap nodeapi.Snapshot
	must(t, &snap, b.args("db", "snapshot", t.TempDir(), "--json")...)
	must(t, nil, b.args("registry", "apply", "-q", "--key", b.key, files[4])...)
	var newest registryapi.Checkpoint
	must(t, &newest, b.args("registry", "checkpoint", "--now", "--json")...)
	seen := filepath.Join(t.TempDir(), "seen.note")
	if err := os.WriteFile(seen, []byte(newest.Note), 0o600); err != nil {
		t.Fatal(err)
	}

	r := &box{dir: filepath.Join(filepath.Dir(b.dir), "r"), env: b.env, genesis: b.genesis}
	must(t, nil, r.args("db", "restore", snap.File, "--json")...)
	copyDir(t, filepath.Join(b.dir, "registry"), filepath.Join(r.dir, "registry"))
	r.key = filepath.Join(r.dir, "registry", filepath.Base(b.key))
	mark, err := os.ReadFile(filepath.Join(r.dir, "registry", "highwater.note"))
	if err != nil {
		t.Fatal(err)
	}
	rp := r.start(t)
	must(t, nil, r.args("db", "accept-restore", "--json")...)
	apply := r.args("registry", "apply", files[6], "--key", r.key)
	if got := ronbox(t, apply...); got.code == cli.ExitDone || !strings.Contains(got.stderr, "rollback_detected") {
		t.Fatalf("the copy takes an apply: exit %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	var head registryapi.Head
	must(t, &head, r.args("registry", "head", "--json")...)
	if head.Version != 5 || head.CheckpointSize > 5 {
		t.Errorf("HEAD of the copy: %+v", head)
	}
	var why registryapi.HighWater
	must(t, &why, r.args("registry", "highwater", "show", "--json")...)
	if !why.Rollback || why.MarkSize != 6 || why.Version != 5 || why.Detail == "" {
		t.Errorf("highwater show: %+v", why)
	}
	if got := ronbox(t, r.args("registry", "checkpoint", "--now")...); got.code == cli.ExitDone {
		t.Errorf("the copy signs a checkpoint:\n%s", got.stdout)
	}
	if now, err := os.ReadFile(filepath.Join(r.dir, "registry", "highwater.note")); err != nil ||
		string(now) != string(mark) {
		t.Errorf("the mark of the copy has moved: %v", err)
	}

	p.signal(t, syscall.SIGTERM)
	out := filepath.Join(t.TempDir(), "log")
	must(t, nil, b.args("registry", "export", "--out", out, "--json")...)
	must(t, nil, "registry", "verify", "--export", out, "--genesis", b.genesis, "--checkpoint", seen, "--json")
	must(t, nil, "registry", "verify", "--db", filepath.Join(b.dir, "ronbox.db"), "--genesis", b.genesis,
		"--checkpoint", seen, "--json")
	if got := spawn(t, "registry", "verify", "--db", snap.File, "--genesis", b.genesis, "--checkpoint", seen,
		"--json"); got.code != cli.ExitBad ||
		!strings.Contains(got.stdout, "older than") {
		t.Errorf("the older snapshot against what was seen: exit %d, %s", got.code, got.stdout)
	}

	var healed registryapi.CaughtUp
	must(t, &healed, r.args("registry", "catch-up", out, "--json")...)
	if healed.From != 5 || healed.To != 6 {
		t.Errorf("caught up: %+v", healed)
	}
	must(t, nil, apply...)
	must(t, nil, r.args("registry", "checkpoint", "--now", "--json")...)
	if code := rp.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("serve ended with %d\n%s", code, rp.stderr)
	}
	must(t, nil, "registry", "verify", "--db", filepath.Join(r.dir, "ronbox.db"), "--genesis", b.genesis,
		"--checkpoint", seen, "--json")
}
