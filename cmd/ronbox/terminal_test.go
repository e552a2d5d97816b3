package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ronbox/cmd/ronbox/cli"
)

const ctrlC = "\x03"

// openTerminal returns both ends of a new pseudo-terminal.
func openTerminal(t *testing.T) (person, process *os.File) {
	t.Helper()
	person = openDevice(t, "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return person, openDevice(t, fmt.Sprintf("/dev/pts/%d", n))
}

func openDevice(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// atTerminal runs a command line with a terminal as stdin and stderr, and types keys after the
// terminal shows prompt. The stderr of the result is the text that the terminal had shown by then.
func atTerminal(t *testing.T, prompt, keys string, args ...string) result {
	t.Helper()
	person, end := openTerminal(t)
	var out bytes.Buffer
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = end, &out, end
	p.begin(t, &syscall.SysProcAttr{Setsid: true, Setctty: true})
	shown := awaitText(t, person, prompt)
	if _, err := person.WriteString(keys); err != nil {
		t.Fatal(err)
	}
	p.await(t, "the keys")
	return result{p.code(), out.String(), shown}
}

// awaitText reads the terminal until it shows text.
func awaitText(t *testing.T, person *os.File, text string) string {
	t.Helper()
	var shown strings.Builder
	for buf := make([]byte, 512); !strings.Contains(shown.String(), text); {
		n, err := person.Read(buf)
		if err != nil {
			t.Fatalf("the terminal shows %q: %v", shown.String(), err)
		}
		shown.Write(buf[:n])
	}
	return shown.String()
}

// An irreversible verb runs only after the user types the name of its object. Ctrl-C at the prompt
// ends the verb at once.
func TestConfirmationAtATerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	epoch := func() string { return must(t, nil, b.args("key", "list", "--json")...).stdout }
	before := epoch()
	for _, tt := range []struct {
		keys string
		code int
	}{{"no\n", cli.ExitFailed}, {"\n", cli.ExitFailed}, {ctrlC, cli.ExitInterrupted}} {
		r := atTerminal(t, "to confirm: ", tt.keys, b.args("token", "revoke", "--all")...)
		if r.code != tt.code || r.stdout != "" || !strings.Contains(r.stderr, "void every token made so far") {
			t.Errorf("%q: exit %d, %q\n%s", tt.keys, r.code, r.stdout, r.stderr)
		}
		if got := epoch(); got != before {
			t.Fatalf("%q: the keys are others: %s", tt.keys, got)
		}
	}
	if r := atTerminal(
		t,
		"to confirm: ",
		"all\n",
		b.args("token", "revoke", "--all", "--json")...); r.code != cli.ExitDone ||
		!strings.Contains(r.stdout, `"what":"epoch"`) {
		t.Errorf("exit %d, %s", r.code, r.stdout)
	}
	if epoch() == before {
		t.Error("confirmed, and nothing was done")
	}
}

// A person is asked before a new account is paid, once, and only y pays. --yes and --new do not ask,
// nor does a payment to an account that exists.
func TestNewPayeeAtATerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	pay := func(more ...string) []string {
		return append(b.args("wallet", "transfer", "alice", "bbo", "5", "--json"), more...)
	}
	for _, tt := range []struct {
		keys string
		code int
	}{{"n\n", cli.ExitFailed}, {"\n", cli.ExitFailed}, {"bbo\n", cli.ExitFailed}, {ctrlC, cli.ExitInterrupted}} {
		r := atTerminal(t, "[y/N] ", tt.keys, pay()...)
		if r.code != tt.code || !strings.Contains(r.stderr, "bbo is a new account; pay 5 ron? [y/N] ") {
			t.Errorf("%q: exit %d, %q\n%s", tt.keys, r.code, r.stdout, r.stderr)
		}
		if r := ronbox(t, b.args("wallet", "balance", "bbo")...); r.code != cli.ExitFailed {
			t.Fatalf("%q: bbo was paid: %s", tt.keys, r.stdout)
		}
	}
	if r := atTerminal(t, "[y/N] ", "y\n", pay()...); r.code != cli.ExitDone || !strings.Contains(r.stdout, `"to":"bbo"`) {
		t.Errorf("exit %d, %s", r.code, r.stdout)
	}
	for doc, args := range map[string][]string{
		"a known payee": pay(),
		"--new":         b.args("wallet", "transfer", "alice", "bboo", "5", "--json", "--new"),
		"--yes":         b.args("wallet", "hold", "alice", "bbooo", "5", "--json", "--yes"),
	} {
		if r := atTerminal(t, "key cli-", "", args...); r.code != cli.ExitDone || strings.Contains(r.stderr, "[y/N]") {
			t.Errorf("%s: exit %d, %s", doc, r.code, r.stderr)
		}
	}
}

// A person is asked before an asset in circulation gets decimals. Without a terminal --yes is needed.
func TestDecimalsAtATerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	args := b.args("wallet", "assets", "--declare", "ron", "--decimals", "2")
	const fact = "1000000 ron will read 10000.00 ron; decimals cannot be changed later"
	if r := atTerminal(t, "[y/N] ", "n\n", args...); r.code != cli.ExitFailed || !strings.Contains(r.stderr, fact+"; go on?") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	if r := ronbox(t, args...); r.code != cli.ExitUsage || !strings.Contains(r.stderr, fact+": needs --yes") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
}

// Ctrl-C during a recording leaves no file.
func TestInterruptedVerbLeavesNoFile(t *testing.T) {
	t.Parallel()
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
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("%v, exit %d\n%s", err, cmd.ProcessState.ExitCode(), rest)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A second Ctrl-C ends a verb that waits for an operation without cancellation, here a pipe without
// a writer.
func TestSecondInterruptEndsAVerb(t *testing.T) {
	// a shell that runs the tests in the background makes them, and the verb, ignore the signal
	_, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
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
		_ = p.cmd.Process.Signal(os.Interrupt) // repeat until it ends; the process may have ended already
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
