package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file is written whole or not at all, and what is there stays unless it is to be replaced.
func TestFilesAreWholeOrNotThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	broken := errors.New("broken")
	half := func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	}
	if err := produceFile(path, 0o600, half); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := writeFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, []byte("second"), 0o600); judge(err).reason != "exists" {
		t.Errorf("a file is written over: %v", err)
	}
	if err := replaceFile(path, []byte("third"), 0o640); err != nil {
		t.Fatal(err)
	}
	asked := false
	if err := produceFile(dir+"/none/../g", 0o600, func(io.Writer) error { asked = true; return nil }); !errors.Is(err, fs.ErrNotExist) || asked {
		t.Errorf("a file that cannot be there is asked for: %t, %v", asked, err)
	}
	elsewhere := &fs.PathError{Op: "open", Path: "/elsewhere", Err: fs.ErrPermission} // as what is read to fill it gives
	err := produceFile(filepath.Join(dir, "g"), 0o600, func(io.Writer) error { return elsewhere })
	if !errors.Is(err, elsewhere) || !strings.Contains(err.Error(), "/elsewhere") {
		t.Errorf("the wrong file is named: %v", err)
	}
	raw, err := os.ReadFile(path)
	if info, _ := os.Stat(path); err != nil || string(raw) != "third" || info.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v", raw, info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

// Ctrl-C in the middle of a recording leaves nothing behind.
func TestInterruptedVerbLeavesNoFile(t *testing.T) {
	b := newBox(t)
	b.start(t)
	dir := t.TempDir()
	cmd := exec.Command(binary, b.args("debug", "trace", "--seconds", "60", "--out", filepath.Join(dir, "trace"))...)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	until(t, "the recording has begun", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) > 0
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, exit %d\n%s", err, cmd.ProcessState.ExitCode(), rest)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A verb that waits for what cannot be called back, here a pipe that nobody fills, ends when Ctrl-C is pressed again.
func TestSecondInterruptEndsAVerb(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(binary, "token", "inspect", pipe), done: make(chan struct{})}
	p.begin(t, &syscall.SysProcAttr{})
	until(t, "the verb reads the pipe", func() bool {
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { _ = w.Close() })
		}
		return err == nil
	})
	until(t, "the verb has ended", func() bool {
		_ = p.cmd.Process.Signal(os.Interrupt) // until it has: the process may be gone
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if p.cmd.ProcessState.Success() {
		t.Error("what was interrupted says that it is done")
	}
}
