package systemd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestNotifyTellsTheManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := Notify("RELOADING=1\nMONOTONIC_USEC=5"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := manager.Read(buf)
	if got := string(buf[:n]); err != nil || got != "RELOADING=1\nMONOTONIC_USEC=5" {
		t.Errorf("%q %v", got, err)
	}
	t.Setenv("NOTIFY_SOCKET", path+".gone")
	if err := Notify("READY=1"); err == nil {
		t.Error("a manager that is gone was told")
	}
}

func TestWatchdogInterval(t *testing.T) {
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"30000000", "", 30 * time.Second},
		{"30000000", fmt.Sprint(os.Getpid()), 30 * time.Second},
		{"30000000", "1", 0}, // another process is meant
		{"soon", "", 0},
		{"-1", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := WatchdogInterval(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
