package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	registryapi "ronbox/httpapi/wire/registry"
)

// exitUnreachable and exitBusy are the exit codes of commands that may be repeated.
const (
	exitUnreachable = 4
	exitBusy        = 6
)

// retry reports whether a failed command may be repeated.
func retry(err error) bool {
	ended, ok := errors.AsType[*exec.ExitError](err)
	return ok && (ended.ExitCode() == exitUnreachable || ended.ExitCode() == exitBusy)
}

// versions is the load of the registry: one publisher, and a reader that expects HEAD not to go
// back.
type versions struct {
	loud
	c    *cluster
	key  string // of the signer
	apis []registryapi.Client

	known    atomic.Uint64     // a version that some client has seen; readers never see less afterwards
	payloads map[uint64]string // of acknowledged versions; only the publisher uses it
}

func newVersions(t testing.TB, c *cluster, token string) *versions {
	t.Helper()
	v := &versions{c: c, key: filepath.Join(c.scratch, "signer.key"), payloads: map[uint64]string{}}
	for _, n := range c.nodes {
		v.apis = append(v.apis, registryapi.NewClient(n.client(t, token, askWithin)))
	}
	return v
}

// publish applies states until ctx ends.
func (v *versions) publish(ctx context.Context, d *rand.Rand) {
	for ctx.Err() == nil {
		file := filepath.Join(v.c.scratch, "state.ndjson")
		items := fmt.Appendf(nil, `{"id":"service/load","kind":"service","meta":{"draw":"%x"}}`+"\n", d.Uint64())
		if err := os.WriteFile(file, items, 0o600); err != nil {
			v.fault("%w", err)
			return
		}
		for v.apply(file, d) && ctx.Err() == nil {
			shortPause(ctx, d, 100*time.Millisecond)
		}
		shortPause(ctx, d, 600*time.Millisecond)
	}
}

// apply applies a file at a random node. It reports whether to repeat that.
func (v *versions) apply(file string, d *rand.Rand) (again bool) {
	n := v.c.nodes[d.IntN(len(v.c.nodes))]
	out, err := n.remote(context.Background(), v.c.token, "registry", "apply", file, "--key", v.key, "--json",
		"--timeout", "3s")
	if err != nil {
		if !retry(err) {
			v.fault("%w", err)
		}
		return retry(err)
	}
	var done struct {
		Version   uint64 `json:"version"`
		PayloadB3 string `json:"payload_b3"`
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		v.fault("registry apply: %w\n%s", err, out)
		return false
	}
	if was := v.payloads[done.Version]; was != "" && was != done.PayloadB3 {
		v.fault("version %d is acknowledged as %s and %s", done.Version, was, done.PayloadB3)
	}
	v.payloads[done.Version] = done.PayloadB3
	v.raise(done.Version)
	return false
}

func (v *versions) raise(to uint64) {
	for {
		was := v.known.Load()
		if to <= was || v.known.CompareAndSwap(was, to) {
			return
		}
	}
}

// read reads HEAD at random nodes until ctx ends.
func (v *versions) read(ctx context.Context, d *rand.Rand) {
	for ctx.Err() == nil {
		known := v.known.Load()
		head, err := v.apis[d.IntN(len(v.apis))].Head(ctx)
		switch {
		case err == nil && head.Version < known:
			v.fault("HEAD is %d, and was %d before", head.Version, known)
		case err == nil:
			v.raise(head.Version)
		case verdictOf(err, "") == fault:
			v.fault("HEAD: %w", err)
		}
		shortPause(ctx, d, 2*clientPause)
	}
}

func (v *versions) clients() []func(context.Context, *rand.Rand) {
	return []func(context.Context, *rand.Rand){v.publish, v.read}
}

// check expects the acknowledged versions of the round, with their payloads.
func (v *versions) check(ctx context.Context, d *rand.Rand) error {
	for number, payload := range v.payloads {
		var got registryapi.Version
		err := repeat(ctx, func(ctx context.Context) (err error) {
			got, err = v.apis[d.IntN(len(v.apis))].Version(ctx, number, false)
			return err
		})
		if err != nil || got.PayloadB3.String() != payload {
			v.fault("version %d is %s (%v), %s was acknowledged", number, got.PayloadB3, err, payload)
			return v.err()
		}
	}
	v.payloads = map[uint64]string{}
	return v.err()
}
