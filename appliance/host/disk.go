package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Latency is how long single syncs took.
type Latency struct {
	Median, Most time.Duration
	Samples      int
}

// syncBlock is what is written before each sync: a page, as a small commit writes some.
const syncBlock = 4096

// SyncLatency writes a page and syncs it, n times, in a file of its own in dir, which it removes. It ends early with ctx; a disk that
// stands still holds it up nevertheless.
func SyncLatency(ctx context.Context, dir string, n int) (l Latency, err error) {
	f, err := os.CreateTemp(dir, ".ronbox-sync-*")
	if err != nil {
		return Latency{}, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	took := make([]time.Duration, 0, n)
	block := make([]byte, syncBlock)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		if _, err := f.WriteAt(block, int64(i)*syncBlock); err != nil {
			return Latency{}, err
		}
		began := time.Now()
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return Latency{}, fmt.Errorf("syncing %s: %w", f.Name(), err)
		}
		took = append(took, time.Since(began))
	}
	return summarize(took)
}

var errNoSample = errors.New("no sync was made")

func summarize(took []time.Duration) (Latency, error) {
	if len(took) == 0 {
		return Latency{}, errNoSample
	}
	slices.Sort(took)
	return Latency{Median: took[len(took)/2], Most: took[len(took)-1], Samples: len(took)}, nil
}
