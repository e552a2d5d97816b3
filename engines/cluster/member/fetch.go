package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/peer"
	"ronbox/store"
)

// FetchOptions are the options of FetchFile.
type FetchOptions struct {
	Progress func(done, total int64) // bytes; may be nil
	Log      hclog.Logger            // nil: none
}

// Pauses between two tries of FetchFile.
const (
	minFetchPause = 250 * time.Millisecond
	maxFetchPause = 5 * time.Second
)

// FetchFile downloads the file of the leader for a node that joins, checks its length and its hash,
// and renames it to the database. It has no effect if the file is there. While no member
// answers it tries again, until ctx ends. It returns ErrToken if the cluster does not know the node
// any more.
func (d *Dir) FetchFile(ctx context.Context, o FetchOptions) error {
	if err := d.fetch(ctx, o); err != nil {
		return fmt.Errorf("fetch the file: %w", err)
	}
	return nil
}

func (d *Dir) fetch(ctx context.Context, o FetchOptions) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	joining, err := readMark[Joining](d, joinMark)
	if err != nil {
		return err
	}
	if has, err := d.hasFile(); has || err != nil {
		return err
	}
	id, err := d.Identity()
	if err != nil {
		return err
	}
	if joining == nil || !joining.Ready {
		return fmt.Errorf("%w: there is no complete join", ErrAlone)
	}
	client := fetchClient(id)
	defer client.CloseIdleConnections()
	for wait := minFetchPause; ; wait = min(2*wait, maxFetchPause) {
		_, err := askAny(ctx, joining.Members, func(addr string) (struct{}, error) {
			return struct{}{}, d.fetchFrom(ctx, client, addr, o.Progress)
		})
		if err == nil {
			return d.adopt()
		}
		if final(err) {
			return err
		}
		if o.Log != nil {
			o.Log.Warn("file_not_fetched", "error", err.Error(), "retry_in", wait.String())
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// fetchIdle bounds the time without a byte from the leader. It takes a snapshot before the first
// one.
const fetchIdle = 5 * time.Minute

// fetchClient returns a client whose connections end when they are idle.
func fetchClient(id *peer.Identity) *http.Client {
	client := id.Client()
	transport := client.Transport.(*http.Transport)
	dial := transport.DialTLSContext
	transport.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return idleConn{c}, nil
	}
	return client
}

// idleConn is a connection whose reads wait for fetchIdle at most.
type idleConn struct{ net.Conn }

func (c idleConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(fetchIdle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// fetchFrom downloads the file from a member, or from the leader that it names.
func (d *Dir) fetchFrom(ctx context.Context, c *http.Client, addr string, progress func(done, total int64)) error {
	res, err := send(ctx, c, addr, PathFile, nil)
	if leader, ok := leaderIn(err); ok {
		res, err = send(ctx, c, leader, PathFile, nil)
	}
	if err != nil {
		return err
	}
	want, err := b3.Parse(res.Header.Get(headerB3))
	if err == nil && res.ContentLength <= 0 {
		err = errors.New("it has no length")
	}
	if err == nil {
		err = d.do("fetch", func() error { return d.receive(res.Body, res.ContentLength, want, progress) })
	}
	return errors.Join(err, res.Body.Close())
}

// receive writes a file of a known length and hash beside the database, and syncs it.
func (d *Dir) receive(r io.Reader, size int64, want b3.Digest, progress func(done, total int64)) error {
	f, err := os.OpenFile(d.fetchFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := b3.New()
	done := int64(0)
	for done < size && err == nil {
		var n int64
		n, err = io.CopyN(io.MultiWriter(f, sum), r, min(1<<20, size-done))
		if done += n; progress != nil {
			progress(done, size)
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if got := sum.Sum32(); got != want {
		return fmt.Errorf("%w: the received file has the hash %v, the leader sent %v", store.ErrCorrupt, got, want)
	}
	return nil
}

// adopt makes the received file the database.
func (d *Dir) adopt() error {
	m, err := store.ReadMembership(d.fetchFile())
	if err == nil && m == nil {
		err = fmt.Errorf("%w: the received file belongs to no cluster", store.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	m.Applied.Origin = "install"
	if err := d.do("members", func() error { return store.SetMembership(d.fetchFile(), m) }); err != nil {
		return err
	}
	return d.do("install", func() error { return d.replaceDatabase(d.fetchFile()) })
}
