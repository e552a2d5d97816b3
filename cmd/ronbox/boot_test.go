package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	exits "ronbox/cmd/ronbox/server/process"
)

// beginPiped starts p and returns a pipe of its stderr. Unlike that of exec, it stays open until it
// is read, although p is waited for.
func beginPiped(t *testing.T, p *process) io.Reader {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	p.cmd.Stderr = w
	p.begin(t, &syscall.SysProcAttr{})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// A node ignores SIGHUP from its first init functions on until it can reload: a boot survives any
// number of them. The runtime names each init function that has returned.
func TestHangupDuringBoot(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.prepare()
	p.cmd.Env = append(b.env, "GODEBUG=inittrace=1")
	trace := beginPiped(t, p)
	lines := bufio.NewScanner(trace)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "init ronbox/") {
		p.stderr.WriteString(lines.Text() + "\n")
	}
	if n := strings.Count(p.stderr.String(), "\n"); n > 40 || !strings.Contains(lines.Text(), "/hangup ") {
		t.Errorf("%d init functions run before that of a package of ronbox: %s", n, lines.Text())
	}
	hangup := func() {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	for hangup(); lines.Scan() && strings.HasPrefix(lines.Text(), "init "); {
		hangup()
	}
	drained := make(chan struct{})
	go func() {
		_, _ = io.Copy(p.stderr, trace)
		close(drained)
	}()
	c := b.client(t)
	until(t, "the node runs", func() bool {
		hangup()
		r, err := c.Ready(t.Context(), "", "read")
		return err == nil && r.Ready
	})
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("serve ended with %d", code)
	}
	<-drained
}

// A stop does not wait for an open that does not return, such as one that waits for the lock of
// another process.
func TestStopDuringOpen(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	held, err := os.Open(filepath.Join(b.dir, config.DatabaseName))
	if err = errors.Join(err, unix.Flock(int(held.Fd()), unix.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	p := b.prepare()
	p.cmd.Env = append(b.env, "RONBOX_STORE__LOCK_TIMEOUT=1m", "RONBOX_LOG__LEVEL=info")
	lines := bufio.NewScanner(beginPiped(t, p))
	for lines.Scan() && !strings.Contains(lines.Text(), `"event":"starting"`) {
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	p.await(t, syscall.SIGTERM)
	if code := p.code(); code != exits.ExitAborted || !strings.Contains(last, "the database did not open") {
		t.Errorf("serve ended with %d: %s", code, last)
	}
}
