package node

import (
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first signal drains, the second aborts, the third leaves.
func TestSignals(t *testing.T) {
	abort, quit := make(chan struct{}), make(chan struct{})
	ctx, stop := onSignals(t.Context(), func() { close(abort) }, func() { close(quit) })
	defer stop()
	for i, told := range []<-chan struct{}{ctx.Done(), abort, quit} {
		for open := true; open; { // the next one may come before its place is taken: a person would press again
			if err := syscall.Kill(
				os.Getpid(),
				[]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGINT}[i],
			); err != nil {
				t.Fatal(err)
			}
			select {
			case <-told:
				open = false
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// Every SIGHUP asks for a reload, and none ends the process.
func TestHangups(t *testing.T) {
	asked := make(chan struct{}, 1)
	stop := onHangup(t.Context(), func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	defer stop()
	for range 3 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
}
