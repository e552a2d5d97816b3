package main

import (
	"os"
	"syscall"
	"testing"
)

// A node goes on when whoever read its log has gone, and when its terminal has closed.
func TestLostReaderAndTerminalDoNotEndTheNode(t *testing.T) {
	b := newBox(t)
	b.env = append(b.env, "RONBOX_LOG__LEVEL=debug")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := b.prepare()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	b.run(t, p)
	b.awaitReady(t, p)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each leaves lines in a log that nobody reads
		if _, err := b.client(t).Head(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if code := p.signal(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("exit %d, want 0", code)
	}
}
