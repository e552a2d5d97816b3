package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// suite is the tests of one package.
type suite struct {
	pkg    string
	dir    string
	args   []string // for its test binary
	stages []stage
}

// stage is some of the tests: those that are to be first, or all.
type stage struct {
	args  []string
	limit time.Duration // they have hung if they take longer
}

// What a test binary may have. The tests of this repository want a tenth of it; a mutant that loops would take the machine.
const (
	maxMemory = 4 << 30
	maxFile   = 4 << 30
	maxOutput = 64 << 10 // the end of what it prints is kept
)

// grace is how long output is waited for that a killed process's children may still hold.
const grace = 5 * time.Second

// newSuite finds out how the tests of a package are run.
func newSuite(ctx context.Context, p *goPackage, seed uint64) (*suite, error) {
	if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
		return nil, fmt.Errorf("%s has no tests", p.ImportPath)
	}
	s := &suite{pkg: p.ImportPath, dir: p.Dir, args: []string{"-test.failfast", "-test.count=1", "-test.paniconexit0", "-test.timeout=0"}}
	rapid, err := draws(ctx, p.Dir, p.ImportPath)
	if rapid {
		s.args = append(s.args, "-rapid.nofailfile", "-rapid.seed="+strconv.FormatUint(seed, 10))
	}
	return s, err
}

// errCompile is a package that the compiler refuses.
var errCompile = errors.New("does not compile")

var compilerSays = regexp.MustCompile(`(?m)^\S+\.go:\d+(:\d+)?: `)

// build makes the suite's test binary. The overlay, if there is one, names the files that are read in place of others.
func (s *suite) build(ctx context.Context, overlay, binary string) error {
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	p := process{dir: s.dir, name: "go", args: append(args, s.pkg)}
	switch err := p.run(ctx); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case compilerSays.Match(p.output.kept):
		return fmt.Errorf("%s %w: %s", s.pkg, errCompile, p.output.kept)
	default:
		return fmt.Errorf("go test -c %s: %w: %s", s.pkg, err, p.output.kept)
	}
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs the test binary, at most for as long as limit if that is not 0. It says what made it fail, "" if it did not, and what was printed.
func (s *suite) run(ctx context.Context, binary, tmp string, limit time.Duration, more ...string) (why string, said []byte, err error) {
	inner, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		inner, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return "", nil, err
	}
	p := process{dir: s.dir, name: binary, args: append(more, s.args...), env: []string{"TMPDIR=" + tmp}, bounded: true}
	err = p.run(inner)
	if gone := os.RemoveAll(tmp); gone != nil {
		return "", nil, gone
	}
	switch test := failed.FindSubmatch(p.output.kept); {
	case ctx.Err() != nil:
		return "", nil, context.Cause(ctx)
	case err == nil:
	case inner.Err() != nil:
		why = timeIsOver
	case test != nil:
		why = string(test[1])
	default:
		why = fmt.Sprintf("%s: %v", filepath.Base(s.pkg), err)
	}
	return why, p.output.kept, nil
}

// fails is run until it is certain: a test that has failed must do so again, alone or among the others, lest chance be taken for a kill.
func (s *suite) fails(ctx context.Context, binary, tmp string, st stage) (why string, err error) {
	why, _, err = s.run(ctx, binary, tmp, st.limit, st.args...)
	test, _, _ := strings.Cut(why, "/")
	if err != nil || !strings.HasPrefix(test, "Test") {
		return why, err
	}
	if again, _, err := s.run(ctx, binary, tmp, st.limit, "-test.run=^"+test+"$"); again != "" || err != nil {
		return why, err
	}
	why, _, err = s.run(ctx, binary, tmp, st.limit, st.args...)
	return why, err
}

// timeIsOver is what has killed a mutant whose tests did not end.
const timeIsOver = "time"

// process is one that takes all it has started with it.
type process struct {
	dir, name string
	args, env []string
	bounded   bool
	output    tail
}

// run runs p until it ends or ctx does.
func (p *process) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.name, p.args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, append(os.Environ(), p.env...), grace
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.bounded {
		for what, most := range map[int]uint64{unix.RLIMIT_DATA: maxMemory, unix.RLIMIT_FSIZE: maxFile} {
			_ = unix.Prlimit(cmd.Process.Pid, what, &unix.Rlimit{Cur: most, Max: most}, nil) // it may have ended
		}
	}
	err := cmd.Wait()
	_ = cmd.Cancel() // what it has left behind; usually nothing
	return err
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - maxOutput; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}
