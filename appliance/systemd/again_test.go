package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// runAgain is the child of TestAgain. It binds two sockets, closes them and becomes a child that
// prints what it inherits. A client connects while nothing accepts, and another thread closes the
// files that it had open, as threads of a run that is cut off do.
func runAgain() {
	path := os.Getenv("SYSTEMD_TEST_SOCKET")
	var files []int
	for range 8 {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		files = append(files, fd)
	}
	ctx, lc := context.Background(), net.ListenConfig{}
	tcp, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	admin, err2 := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err = errors.Join(err, err2); err != nil {
		fmt.Println(err)
		return
	}
	admin.SetUnlinkOnClose(false)
	a, err := Duplicate(HTTPName, "127.0.0.1:0", tcp.(syscall.Conn))
	b, err2 := Duplicate(AdminName, "", admin)
	_ = errors.Join(tcp.Close(), admin.Close())
	client, err3 := (&net.Dialer{}).DialContext(ctx, "tcp", tcp.Addr().String())
	if err = errors.Join(err, err2, err3); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = client.Write([]byte("waited"))
	fmt.Println("passed", tcp.Addr())
	closing := make(chan struct{})
	go func() {
		close(closing)
		for {
			for _, fd := range files {
				_ = unix.Close(fd)
			}
		}
	}()
	<-closing
	fmt.Println(Again([]Socket{a, b}, "SYSTEMD_TEST_CHILD=1"))
}

// A process that runs again keeps its pid, its sockets and the connections that wait.
func TestAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SYSTEMD_TEST_CHILD=again", "SYSTEMD_TEST_SOCKET="+path,
		"GODEBUG=containermaxprocs=0") // the runtime keeps no file at 3
	raw, err := cmd.CombinedOutput()
	got := string(raw)
	_, rest, _ := strings.Cut(got, "passed ")
	at, _, _ := strings.Cut(rest, "\n")
	for _, want := range []string{
		HTTPName + " " + at + " kept 127.0.0.1:0 waited\n", AdminName + " " + path + "\n", "then 0 <nil> \n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%v: %q lacks %q", err, got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	got := environ([]string{"A=1", "LISTEN_FDS=2", "B"}, []string{"LISTEN_FDS=0", "C="})
	if want := []string{"A=1", "B", "LISTEN_FDS=0", "C="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPassedSocketsAreTakenOnce(t *testing.T) {
	t.Setenv(envSockets, `[{"Name":"a","Bind":"b","FD":40}]`)
	if got := takePassed(); !slices.Equal(got, []Socket{{Name: "a", Bind: "b", FD: 40}}) {
		t.Errorf("%+v", got)
	}
	if got := takePassed(); got != nil {
		t.Errorf("again %+v", got)
	}
	t.Setenv(envSockets, "{")
	if got := takePassed(); got != nil {
		t.Errorf("of no list %+v", got)
	}
}
