package clustertest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// answerer starts a server that answers each line with the same line.
func answerer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					fmt.Fprintln(c, s.Text())
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// A link loses data of one direction and keeps the other; a healed one delivers what waits.
func TestLinksAreCutOneWay(t *testing.T) {
	t.Parallel()
	l := newLinks(t, []string{answerer(t), answerer(t)})
	l.runs(0, os.Getpid()) // this process is node 0, and dials node 1
	c, err := net.Dial("tcp", l.address(1))
	must(t, err)
	defer func() { _ = c.Close() }()
	lines := bufio.NewScanner(c)
	echo := func(want string) {
		t.Helper()
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	fmt.Fprintln(c, "whole")
	echo("whole")
	for _, w := range [][]way{l.from(0), l.to(0)} {
		l.lose(w...)
		fmt.Fprintln(c, "waits")
		must(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		buf := make([]byte, 1)
		if n, err := c.Read(buf); err == nil {
			t.Fatalf("%d bytes passed a cut", n)
		}
		l.heal(false)
		echo("waits")
	}
	l.heal(true)
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a reset connection still delivers")
	}
}
