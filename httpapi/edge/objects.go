package edge

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
)

// Objects moves the objects of the edge between the members of a cluster, by their hashes. The
// members have the same rows; the bytes of an object are on the member that stored it, and on those
// that have taken or fetched it. An object that was put goes to all members that answer, so that
// each can serve it without a leader. It implements edge.Members and the handlers of the peer port.
type Objects struct {
	Shelf  Shelf // nil: this member has no content store
	Client interface {
		Do(*http.Request) (*http.Response, error)
	}
	Log    hclog.Logger
	Sender func(*http.Request) string // the member that has sent a request, or ""
	Leads  func() bool
	// Others returns the peer ports of the other members that answer, voters first, and whether
	// those are all other members.
	Others func() (addrs []string, all bool)
}

// Shelf is the content store of a member. [edge.Shelf] implements it.
type Shelf interface {
	Put(ctx context.Context, d b3.Digest, size int64, body io.Reader) error
	Open(d b3.Digest, size int64) (*os.File, error)
}

// pathObjects is the prefix of the path of an object on the peer port. The hash in hex follows, and
// for GET the query size.
const pathObjects = "/objects/"

// Bounds of a transfer. They are short because the caller of a put waits for it.
const (
	moveWithin = 2 * time.Second // of all tries together
	moveRate   = 8 << 20         // bytes that add a second
	moveIdle   = 10 * time.Second
	movePiece  = 1 << 20

	// moveGrace is the time that other members have to take an object after the first one has it,
	// in addition to half of the time that the first one took: a slow member delays no put for
	// long.
	moveGrace = 250 * time.Millisecond
)

// boundOf returns the time for a transfer.
func boundOf(size int64) time.Duration { return moveWithin + time.Duration(size/moveRate)*time.Second }

// Register adds the handlers for requests of members. It adds none without a Shelf.
func (o *Objects) Register(mux *http.ServeMux) {
	if o.Shelf == nil {
		return
	}
	mux.HandleFunc("PUT "+pathObjects+"{hex}", o.handle(o.put))
	mux.HandleFunc("GET "+pathObjects+"{hex}", o.handle(o.get))
}

var (
	errLeads = errors.New("this member leads, and stores its objects itself")
	errSize  = errors.New("the size of the object is missing")
)

// handle returns a handler that answers a failure of do with its status.
func (o *Objects) handle(do func(http.ResponseWriter, *http.Request, b3.Digest) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if o.Sender(r) == "" {
			http.Error(w, "not a member", http.StatusForbidden)
			return
		}
		d, err := b3.Parse("b3:" + r.PathValue("hex"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err = do(w, r, d); err == nil {
			return
		}
		o.Log.Debug("object_refused", "digest", d.String(), "peer", peer.PeerID(r), "reason", err.Error())
		http.Error(w, err.Error(), statusOfMove(err))
	}
}

// statusOfMove returns the status that tells another member of a failure.
func statusOfMove(err error) int {
	_, lie := errors.AsType[*asset.DigestError](err)
	switch {
	case lie:
		return http.StatusUnprocessableEntity
	case errors.Is(err, errSize):
		return http.StatusBadRequest
	case errors.Is(err, errLeads):
		return http.StatusConflict
	case errors.Is(err, asset.ErrFull):
		return http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, cas.ErrCorrupt):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// put serves PUT /objects/HEX: it stores an object of the leader.
func (o *Objects) put(w http.ResponseWriter, r *http.Request, d b3.Digest) error {
	if o.Leads() {
		return errLeads
	}
	if r.ContentLength < 0 {
		return errSize
	}
	body := patientBody{r.Body, http.NewResponseController(w)}
	if err := o.Shelf.Put(r.Context(), d, r.ContentLength, body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

// patientBody is a body of a request whose reads wait for moveIdle at most.
type patientBody struct {
	io.Reader
	conn *http.ResponseController
}

func (b patientBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(time.Now().Add(moveIdle)) // not supported by test recorders
	return b.Reader.Read(p)
}

// get serves GET /objects/HEX?size=N.
func (o *Objects) get(w http.ResponseWriter, r *http.Request, d b3.Digest) error {
	size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err != nil {
		return errSize
	}
	f, err := o.Shelf.Open(d, size)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	conn := http.NewResponseController(w)
	for sent := int64(0); sent < size && err == nil; {
		_ = conn.SetWriteDeadline(time.Now().Add(moveIdle)) // not supported by test recorders
		var n int64
		n, err = io.CopyN(w, f, min(movePiece, size-sent))
		sent += n
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the header was sent
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return nil
}

// Copy implements edge.Members.
func (o *Objects) Copy(ctx context.Context, d b3.Digest, size int64, open func() (io.ReadCloser, error)) int {
	addrs, all := o.Others()
	if all && len(addrs) == 0 {
		return 0 // a cluster of one
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, boundOf(size))
	defer cancel()
	var taken atomic.Int64
	failed := make([]error, len(addrs))
	_ = flow.Fan(ctx, len(addrs), func(ctx context.Context, leg int) error { // no leg fails
		body, err := open()
		if err == nil {
			err = o.send(ctx, addrs[leg], d, size, body)
		}
		if err != nil {
			failed[leg] = fmt.Errorf("%s: %w", addrs[leg], err)
		} else if taken.Add(1) == 1 {
			//rawchan: it ends a context, and never waits
			time.AfterFunc(moveGrace+time.Since(begun)/2, cancel)
		}
		return nil
	})
	if taken.Load() == 0 {
		err := cmp.Or(errors.Join(failed...), errNoOther)
		o.Log.Warn("object_not_copied", "digest", d.String(), "reason", err.Error(),
			"next", "put it again once another member answers")
	}
	return int(taken.Load())
}

// send sends an object to a member. It closes body.
func (o *Objects) send(ctx context.Context, addr string, d b3.Digest, size int64, body io.ReadCloser) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, urlOfObject(addr, d), body)
	if err != nil {
		return errors.Join(err, body.Close())
	}
	if r.ContentLength = size; size == 0 {
		_ = body.Close() // opened for reading only
		r.Body = http.NoBody
	}
	resp, err := o.Client.Do(r)
	if err != nil {
		return err
	}
	return errors.Join(refusalOf(resp), resp.Body.Close())
}

func urlOfObject(addr string, d b3.Digest) string {
	return "https://" + addr + pathObjects + hex.EncodeToString(d[:])
}

// refusalOf returns the error that an answer of a member tells, or nil.
func refusalOf(resp *http.Response) error {
	if resp.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 256))
	return fmt.Errorf("it answers %d: %q", resp.StatusCode, text)
}

// Fetch implements edge.Members.
func (o *Objects) Fetch(ctx context.Context, d b3.Digest, size int64, take func(io.Reader) error) error {
	addrs, all := o.Others()
	absent := 0
	err := o.ask(ctx, addrs, size, func(ctx context.Context, addr string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			urlOfObject(addr, d)+"?size="+strconv.FormatInt(size, 10), http.NoBody)
		if err != nil {
			return err
		}
		resp, err := o.Client.Do(r)
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusNotFound {
			absent++
		}
		if err = refusalOf(resp); err == nil {
			err = take(resp.Body)
		}
		return errors.Join(err, resp.Body.Close())
	})
	switch {
	case err == nil:
		return nil
	case all && absent == len(addrs):
		return asset.ErrNotFound
	}
	return fmt.Errorf("fetch %s from the members: %w", d, err)
}

var errNoOther = errors.New("no other member answers")

// ask calls try with one member after the other until one succeeds, within the bounds of a
// transfer. A member gets half of the time that is left, so that one that hangs leaves some to the
// next.
func (o *Objects) ask(
	ctx context.Context,
	addrs []string,
	size int64,
	try func(ctx context.Context, addr string) error,
) (err error) {
	if len(addrs) == 0 {
		return errNoOther
	}
	end := time.Now().Add(boundOf(size))
	for i, addr := range addrs {
		within := time.Until(end)
		if i < len(addrs)-1 {
			within /= 2
		}
		each, cancel := context.WithTimeout(ctx, within)
		bad := try(each, addr)
		cancel()
		if bad == nil {
			return nil
		}
		if err = errors.Join(err, fmt.Errorf("%s: %w", addr, bad)); ctx.Err() != nil {
			return err
		}
	}
	return err
}
