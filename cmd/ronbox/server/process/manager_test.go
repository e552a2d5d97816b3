package process

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// listen acts as the service manager until the test ends. The function returns all notifications up to
// STATUS=end, which a test sends last.
func listen(t *testing.T) (heard func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Cleanup(func() {
		_ = conn.Close()
		_ = os.RemoveAll(dir)
	})
	return func() string {
		var said []string
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if said = append(said, string(buf[:n])); string(buf[:n]) == "STATUS=end" {
				return strings.Join(said, "\n--\n")
			}
		}
	}
}

// While a commit hangs, the node sends no watchdog notification.
func TestWatchdogStarvesOfAStuckCommit(t *testing.T) {
	heard := listen(t)
	m := &Manager{every: 30 * time.Second, born: time.Now().Add(-time.Hour), log: hclog.NewNullLogger()}
	m.Feed(16 * time.Second)
	m.Feed(14 * time.Second)
	m.Feed(0)
	m.fed.Store(int64(time.Since(m.born) - 20*time.Second))
	m.Feed(15 * time.Second)
	m.Status("end")
	if all := heard(); strings.Count(all, "WATCHDOG=1") != 2 {
		t.Errorf("said %q", all)
	}
}

// A reload before the node serves, or after it begins to stop, is not reported to the service
// manager. A long stop asks for more time once.
func TestManagerHearsNoReloadOutside(t *testing.T) {
	heard := listen(t)
	m := NewManager(hclog.NewNullLogger(), 0)
	reload := func() {
		m.Reloading()
		m.Ready()
	}
	reload()
	m.Serving("up")
	reload()
	m.Stopping("signal", time.Minute)
	m.Stopping("again", time.Minute)
	reload()
	m.Status("end")
	want := `^READY=1\nSTATUS=up\n--\nRELOADING=1\nMONOTONIC_USEC=\d+\n--\nREADY=1\n--\n` +
		`STOPPING=1\nSTATUS=Draining: signal\n--\nEXTEND_TIMEOUT_USEC=60000000\n--\nSTATUS=end$`
	if said := heard(); !regexp.MustCompile(want).MatchString(said) {
		t.Errorf("said %q", said)
	}
}

// The reason for a stop is sent to the service manager as one line, whatever it contains.
func TestManagerIsToldOneLine(t *testing.T) {
	heard := listen(t)
	m := NewManager(hclog.NewNullLogger(), 0)
	m.Stopping("tired\nMAINPID=1\r\x00"+strings.Repeat("x", 2000), time.Minute)
	m.Status("end")
	first, _, _ := strings.Cut(heard(), "\n--\n")
	if strings.Count(first, "\n") != 1 || !strings.Contains(first, "tired MAINPID=1") || len(first) > 400 {
		t.Errorf("said %q", first)
	}
}
