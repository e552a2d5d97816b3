package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// childEnv makes the test binary run as a child process: "<role> <path>".
const childEnv = "RONBOX_STORE_CHILD"

func child() int {
	role, path, _ := strings.Cut(os.Getenv(childEnv), " ")
	switch role {
	case "hold":
		return childHold(path)
	case "write":
		return childWrite(path)
	case "migrate":
		return childMigrate(path)
	case "compact":
		return childCompact(path)
	case "snapshot":
		return childSnapshot(path)
	case "limit":
		return childLimit(path)
	}
	return 2
}

// childProcess starts the test binary in a role. It returns the standard output of the child, and
// its standard input to close.
func childProcess(t *testing.T, role, path string) (cmd *exec.Cmd, said *bufio.Reader, hush io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out), in
}

// childHold opens the file and keeps it until its standard input ends.
func childHold(path string) int {
	s := newStore(path, testConfig())
	if err := ready(context.Background(), s); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		return 1
	}
	return 0
}

// childWrite commits numbers until it is killed. It prints "s <n>" before it submits a number and
// "a <n>" after the number is acknowledged.
func childWrite(path string) int {
	s := newStore(path, testConfig())
	if err := ready(context.Background(), s); err != nil {
		fmt.Println("x", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = s.runCommitter(ctx) }()
	var say sync.Mutex
	tell := func(what string, n uint64) {
		say.Lock()
		defer say.Unlock()
		_, _ = fmt.Fprintln(os.Stdout, what, n)
	}
	var next atomic.Uint64
	next.Store(s.Info().Seq << 20) // numbers are unique across restarts of the process
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				n := next.Add(1)
				tell("s", n)
				if _, err := Commit(ctx, s, Work, putNumber{n}); err != nil {
					return
				}
				tell("a", n)
			}
		})
	}
	wg.Wait()
	return 0
}

// putNumber writes one number into two rows. A torn commit would leave only one of the rows.
type putNumber struct{ N uint64 }

func (putNumber) Kind() string { return "test.number/1" }

func (c putNumber) Apply(_ Reader, at Stamp, w *Writes) (uint64, error) {
	rows.Put(w, strconv.FormatUint(c.N, 10), binary.BigEndian.AppendUint64(make([]byte, 0, 512), at.Seq)[:512])
	logRows.Put(w, at.Seq, []byte(strconv.FormatUint(c.N, 10)))
	return at.Seq, nil
}

const crashCycles = 30

// A store that is killed at any point has every acknowledged number, no number that was not
// submitted, and both rows of each number. One child in four is killed during its start, the others
// after a number of acknowledgements while eight submitters run.
func TestKill(t *testing.T) {
	path := newFile(t)
	submitted, acked := map[string]bool{}, map[string]bool{}
	cycles := crashCycles
	if testing.Short() {
		cycles /= 5
	}
	for cycle := range cycles {
		cmd, said, in := childProcess(t, "write", path)
		early := cycle%4 == 0
		if early {
			time.AfterFunc(time.Duration(cycle)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		before, enough := len(acked), 1+cycle*7%60
		for {
			line, err := said.ReadString('\n')
			if err != nil {
				break
			}
			what, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch what {
			case "s":
				submitted[n] = true
			case "a":
				acked[n] = true
			default:
				t.Fatalf("child: %s", line)
			}
			if !early && len(acked) == before+enough {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		_ = in.Close()
		if got := len(acked) - before; !early && got < enough {
			t.Fatalf("cycle %d: the child ended after %d of %d acknowledgements", cycle, got, enough)
		}
		checkKilled(t, path, submitted, acked)
	}
}

func checkKilled(t *testing.T, path string, submitted, acked map[string]bool) {
	t.Helper()
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info().Clean && len(acked) > 0 {
		t.Error("a killed store says that it stopped clean")
	}
	found, logged := map[string]bool{}, map[string]bool{}
	err = r.View(t.Context(), func(rd Reader) error {
		for k := range rows.All(rd) {
			found[k] = true
		}
		last := uint64(0)
		for seq, n := range logRows.All(rd) {
			logged[string(n)] = true
			if seq != last+1 {
				t.Fatalf("seq %d follows %d", seq, last)
			}
			last = seq
		}
		if last != r.Info().Seq {
			t.Errorf("the last command is %d, meta says %d", last, r.Info().Seq)
		}
		return nil
	})
	if err = errors.Join(err, r.checkPages(t.Context()), r.Close()); err != nil {
		t.Fatal(err)
	}
	for n := range acked {
		if !found[n] {
			t.Fatalf("acknowledged %s is lost", n)
		}
	}
	for n := range found {
		if !submitted[n] || !logged[n] {
			t.Fatalf("%s was found; submitted %v, logged %v", n, submitted[n], logged[n])
		}
	}
}

// childLimit fills a file under a limit of the process on file sizes and prints the results.
func childLimit(path string) int {
	if err := limitFileSize(32 << 20); err != nil {
		fmt.Println(err)
		return 1
	}
	s := newStore(path, testConfig())
	if err := ready(context.Background(), s); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.runCommitter(ctx)
	}()
	var err error
	n := 0
	for ; err == nil && n < 64; n++ {
		_, err = Commit(ctx, s, Work, put{Key: strconv.Itoa(n), Value: string(make([]byte, 1<<20))})
	}
	read := s.View(ctx, func(r Reader) error {
		if v, _ := rows.Get(r, "0"); len(v) != 1<<20 {
			return errRefused
		}
		return nil
	})
	full, unready := s.room.cause(), s.Health() // Health may report a slow disk first
	if err := limitFileSize(1 << 40); err != nil {
		fmt.Println(err)
		return 1
	}
	for end := time.Now().Add(time.Minute); s.room.full() && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
	_, healed := Commit(ctx, s, Work, put{Key: "healed", Value: string(make([]byte, 1<<20))})
	fmt.Println(errors.Is(err, ErrFull), s.Err() == nil, n > 4, read == nil, errors.Is(full, ErrFull) && unready != nil,
		healed == nil, err)
	s.CloseLanes()
	<-done
	_ = s.Close()
	return 0
}

// A full disk, simulated with RLIMIT_FSIZE, is a clean error: writes are refused, no committed row
// is lost, Health reports the store as unready, reads continue, and writes succeed again once there
// is space. The file can be reopened. bbolt reports the failed truncate as text only.
func TestNoMoreRoom(t *testing.T) {
	path := newFile(t)
	cmd, said, in := childProcess(t, "limit", path)
	line, _ := said.ReadString('\n')
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil ||
		!strings.HasPrefix(line, "true true true true true true") {
		t.Errorf("child says %q, %v", line, err)
	}
	rep, err := Verify(t.Context(), path, nil, nil, nil)
	if err != nil || !rep.OK {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A second process, and a second store in this process, get an error that names the process that
// has the file open.
func TestLocked(t *testing.T) {
	path := newFile(t)
	cmd, said, in := childProcess(t, "hold", path)
	if line, err := said.ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	wantHolder(t, path, cmd.Process.Pid)
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	r := open(t, path)
	wantHolder(t, path, os.Getpid())
	r.stop()
	free, err := OpenReader(path)
	if err == nil {
		err = free.Close()
	}
	if err != nil {
		t.Errorf("after the holder has gone: %v", err)
	}
}

func wantHolder(t *testing.T, path string, pid int) {
	t.Helper()
	opened := ready(t.Context(), newStore(path, testConfig()))
	_, reader := OpenReader(path)
	_, restored := Restore(t.Context(), snapshotOf(t), path, RestoreOptions{Now: day}, nil)
	_, verified := Verify(t.Context(), path, nil, nil, nil)
	for name, err := range map[string]error{"open": opened, "reader": reader, "restore": restored, "verify": verified} {
		var locked *LockedError
		if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) || locked.PID != pid {
			t.Errorf("%s: %v; want holder %d", name, err, pid)
			continue
		}
		if !strings.Contains(err.Error(), strconv.Itoa(pid)) ||
			!strings.Contains(locked.Command, filepath.Base(os.Args[0])) {
			t.Errorf("%s: %v does not name the process", name, err)
		}
	}
}

// snapshotOf takes a snapshot of a fresh store.
func snapshotOf(t *testing.T) string {
	t.Helper()
	r := open(t, newFile(t))
	m, err := r.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	return m.Path
}
