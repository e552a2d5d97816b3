package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/rverify"
	edgeapi "ronbox/httpapi/wire/edge"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

const (
	objectSize = 3 << 20
	uploadRows = 20_000  // three parts
	partSize   = 1 << 20 // of `ronbox rewarder run`
	lostFor    = 4 * time.Second
)

const policyFile = "../../../testdata/rewarder/policy.json"

// object is an object that is put while the leader is killed.
type object struct {
	name   string
	data   []byte
	digest b3.Digest
}

func newObject(name string, d *rand.Rand) *object {
	o := &object{name: name, data: make([]byte, objectSize)}
	for at := 0; at < len(o.data); at += 8 {
		copy(o.data[at:], fmt.Appendf(nil, "%08x", d.Uint32()))
	}
	o.digest = b3.Sum(o.data)
	return o
}

// put puts the object at a node, which may have it.
func (o *object) put(ctx context.Context, at edgeapi.Client, body io.Reader) (edgeapi.Object, error) {
	return at.PutObject(ctx, edgeapi.ObjectPut{Body: body, Size: objectSize, Expect: o.digest})
}

// halfBody is a body that waits in its middle.
type halfBody struct {
	in   *bytes.Reader
	half chan struct{} // closed when the first half was read
	more chan struct{} // lets the second half be read
}

func newHalfBody(data []byte) *halfBody {
	return &halfBody{in: bytes.NewReader(data), half: make(chan struct{}), more: make(chan struct{})}
}

func (b *halfBody) Read(p []byte) (int, error) {
	const half = objectSize / 2
	switch done := int(b.in.Size()) - b.in.Len(); {
	case done < half:
		p = p[:min(len(p), half-done)]
	case done == half:
		close(b.half)
		<-b.more
	}
	return b.in.Read(p)
}

// rewardUpload is an upload of usage, in the parts that `ronbox rewarder run` sends.
type rewardUpload struct {
	epoch string
	usage string // a file
	open  rewarder.OpenInput
	parts [][]byte
	rows  []int // of each part
}

func newRewardUpload(t testing.TB, c *cluster, epoch string, d *rand.Rand) *rewardUpload {
	t.Helper()
	u := &rewardUpload{epoch: epoch, usage: filepath.Join(c.scratch, "upload.csv")}
	var text strings.Builder
	text.WriteString("actor,metric,qty,content\n")
	for i := range uploadRows {
		fmt.Fprintf(&text, "%s/a%d,requests,%d,%s\n", epoch, i%rewardActors, 1+d.IntN(1_000),
			b3.Sum(fmt.Appendf(nil, "%s %d", epoch, i)))
	}
	must(t, os.WriteFile(u.usage, []byte(text.String()), 0o600))
	raw, err := os.ReadFile(policyFile)
	must(t, err)
	policy, err := rverify.ParsePolicy(raw)
	must(t, err)
	usage, err := rverify.ReadCSV(strings.NewReader(text.String()))
	must(t, err)
	head, err := usage.Snapshot(&policy, epoch, strconv.Itoa(rewardPool))
	must(t, err)
	pool, err := engines.ParseAmount(strconv.Itoa(rewardPool))
	must(t, err)
	u.open = rewarder.OpenInput{
		EpochID: epoch, Asset: policy.Asset, PoolMinor: pool, Metrics: head.Metrics, Account: policy.Account,
		Expect: head.CID(),
	}
	for i := range usage {
		line := usage[i].Line()
		if last := len(u.parts) - 1; last < 0 || len(u.parts[last])+len(line) > partSize {
			u.parts, u.rows = append(u.parts, nil), append(u.rows, 0)
		}
		last := len(u.parts) - 1
		u.parts[last] = append(u.parts[last], line...)
		u.rows[last]++
	}
	return u
}

// uploads are the services of all nodes that take uploads.
type uploads struct {
	t       testing.TB
	c       *cluster
	d       *rand.Rand
	edges   []edgeapi.Client
	rewards []rewarderapi.Client
	sockets bool // rewards and the CLI use the admin sockets
}

func newUploads(t testing.TB, c *cluster, d *rand.Rand) *uploads {
	t.Helper()
	u := &uploads{t: t, c: c, d: d, sockets: d.IntN(2) == 0}
	for _, n := range c.nodes {
		api := n.client(t, c.secret, patience)
		u.edges = append(u.edges, edgeapi.NewClient(api))
		if u.sockets {
			api = n.socket(t)
		}
		u.rewards = append(u.rewards, rewarderapi.NewClient(api))
	}
	return u
}

// cli repeats a command of a client at random nodes until it is done.
func (u *uploads) cli(args ...string) {
	u.t.Helper()
	for {
		n := u.c.nodes[u.d.IntN(len(u.c.nodes))]
		var err error
		if u.sockets {
			_, err = n.ronbox(u.t.Context(), args...)
		} else {
			_, err = n.remote(u.t.Context(), u.c.token, args...)
		}
		if err == nil {
			return
		}
		if !retry(err) {
			u.t.Fatal(err)
		}
	}
}

// until repeats a request at random nodes until it is done, as a client does that keeps its key. Each
// failure must be one that a client may repeat.
func (u *uploads) until(what string, ask func(ctx context.Context, place int) error) {
	u.t.Helper()
	err := repeat(u.t.Context(), func(ctx context.Context) error { return ask(ctx, u.d.IntN(len(u.c.nodes))) })
	if err != nil {
		u.t.Fatalf("%s: %v", what, err)
	}
}

// outcome is the answer to a request that was under way when the leader was killed.
type outcome struct {
	what   string
	err    error
	mayEnd bool // the leader may have executed it
}

// killAtUpload kills the leader while it has the half of two objects, one by way of another node,
// and has taken an object and a part of an upload whose answers do not arrive. The clients are told
// to repeat; then everything is there once. An object that two nodes have is read meanwhile.
func killAtUpload(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	u := newUploads(t, c, d)
	up := newRewardUpload(t, c, fmt.Sprintf("up%x", d.Uint64()), d)
	var opened rewarder.Upload
	u.until("open an upload", func(ctx context.Context, place int) (err error) {
		opened, err = u.rewards[place].Open(ctx, up.open)
		return err
	})
	u.until("the first part", func(ctx context.Context, place int) error {
		_, err := u.rewards[place].PutPart(ctx, opened.ID, 0, up.parts[0])
		return err
	})
	kept := newObject("acknowledged before", d)
	var ack edgeapi.Object
	u.until("put "+kept.name, func(ctx context.Context, place int) (err error) {
		ack, err = kept.put(ctx, u.edges[place], bytes.NewReader(kept.data))
		return err
	})
	before := u.stored()
	i := c.leader(t)
	near, far := (i+1)%len(c.nodes), (i+2)%len(c.nodes)
	if d.IntN(2) == 0 {
		near, far = far, near
	}
	objects := []*object{newObject("by way of another node", d), newObject("at the leader", d), newObject("whole", d)}
	for _, o := range u.strike(i, near, far, opened.ID, up, objects) {
		v := verdictOf(o.err, "")
		if v == fault || v == done && !o.mayEnd {
			t.Fatalf("%s, while the leader was killed: %v", o.what, o.err)
		}
		t.Logf("%s, while the leader was killed: %v", o.what, o.err)
	}
	if ack.Copies > 1 {
		u.mustRead(near, kept)
	}
	c.start(t, i)
	for _, o := range objects[1:] {
		u.until("put again, "+o.name, func(ctx context.Context, place int) error {
			_, err := o.put(ctx, u.edges[place], bytes.NewReader(o.data))
			return err
		})
	}
	file := filepath.Join(c.scratch, "object.bin")
	must(t, os.WriteFile(file, objects[0].data, 0o600))
	u.cli("edge", "put", file, "--json")
	u.until("the second part again", func(ctx context.Context, place int) error {
		got, err := u.rewards[place].PutPart(ctx, opened.ID, 1, up.parts[1])
		if want := up.rows[0] + up.rows[1]; err == nil && (got.Parts != 2 || got.Rows != uint64(want)) {
			t.Errorf("the upload has %d parts and %d rows, want 2 and %d", got.Parts, got.Rows, want)
		}
		return err
	})
	c.well(t)
	u.checkObjects(before, objects)
	u.checkPaid(up)
}

// strike starts the requests, kills the leader, and returns their outcomes. near and far follow it.
func (u *uploads) strike(
	leader, near, far int, id b3.Digest, up *rewardUpload, objects []*object,
) (all []outcome) {
	bodies := []*halfBody{newHalfBody(objects[0].data), newHalfBody(objects[1].data)}
	var mu sync.Mutex
	var requests sync.WaitGroup
	ask := func(what string, mayEnd bool, do func(context.Context) error) (ended chan struct{}) {
		ended = make(chan struct{})
		requests.Go(func() {
			defer close(ended)
			err := do(u.t.Context())
			mu.Lock()
			defer mu.Unlock()
			all = append(all, outcome{what, err, mayEnd})
		})
		return ended
	}
	for j, place := range []int{near, leader} {
		late := time.After(patience)
		ended := ask("put, "+objects[j].name, false, func(ctx context.Context) error {
			_, err := objects[j].put(ctx, u.edges[place], bodies[j])
			return err
		})
		select {
		case <-bodies[j].half:
		case <-ended: // it was refused: the leader has lost its office
		case <-late:
			u.t.Fatalf("half of the object %s was not read after %s", objects[j].name, patience)
		}
	}
	u.c.links.lose(way{leader, near})
	ask("put, whole", true, func(ctx context.Context) error {
		_, err := objects[2].put(ctx, u.edges[near], bytes.NewReader(objects[2].data))
		return err
	})
	ask("part of an upload", true, func(ctx context.Context) error {
		_, err := u.rewards[near].PutPart(ctx, id, 1, up.parts[1])
		return err
	})
	taken := u.taken(far, id, objects[2])
	u.c.nodes[leader].kill()
	u.t.Logf("the leader is killed; it had taken the whole object and the part: %t", taken)
	for _, b := range bodies {
		close(b.more)
	}
	u.c.links.heal(true)
	requests.Wait()
	return all
}

// taken waits until a node shows the object and the second part of the upload, or for lostFor: the
// requests may need a new connection, which cannot be made.
func (u *uploads) taken(place int, id b3.Digest, o *object) bool {
	ctx, stop := context.WithTimeout(u.t.Context(), lostFor)
	defer stop()
	for ctx.Err() == nil {
		keys, err := u.edges[place].EdgeKeys(ctx, o.digest.String(), "", 1, true)
		if err == nil && len(keys.Keys) == 1 {
			if one, err := u.upload(ctx, place, id); err == nil && one.Parts == 2 {
				return true
			}
		}
		shortPause(ctx, u.d, 100*time.Millisecond)
	}
	return false
}

var errNoUpload = errors.New("the upload is not listed")

// upload returns an upload as a node lists it.
func (u *uploads) upload(ctx context.Context, place int, id b3.Digest) (rewarder.UploadInfo, error) {
	for after := ""; ; {
		page, err := u.rewards[place].Uploads(ctx, after, 100)
		if err != nil {
			return rewarder.UploadInfo{}, err
		}
		for _, one := range page.Uploads {
			if one.ID == id {
				return one, nil
			}
		}
		if after = page.Next; after == "" {
			return rewarder.UploadInfo{}, errNoUpload
		}
	}
}

// stored returns how full the content store is.
func (u *uploads) stored() (s edgeapi.Store) {
	u.t.Helper()
	u.until("the content store", func(ctx context.Context, place int) (err error) {
		s, err = u.edges[place].EdgeStore(ctx)
		return err
	})
	return s
}

// checkObjects expects each object once, pinned, with its bytes, at all nodes.
func (u *uploads) checkObjects(before edgeapi.Store, objects []*object) {
	u.t.Helper()
	n := int64(len(objects))
	now := u.stored()
	if now.Objects-before.Objects != n || now.Pins-before.Pins != n || now.Bytes-before.Bytes != n*objectSize {
		u.t.Errorf("the content store was %+v, and is %+v after %d objects", before, now, n)
	}
	for place := range u.edges {
		for _, o := range objects {
			u.mustRead(place, o)
		}
	}
}

// mustRead expects a node to answer with the bytes of an object.
func (u *uploads) mustRead(place int, o *object) {
	u.t.Helper()
	var got []byte
	u.until("read "+o.name, func(ctx context.Context, _ int) (err error) {
		got, err = u.edges[place].EdgeBytes(ctx, "assets/b3/"+strings.TrimPrefix(o.digest.String(), "b3:"))
		return err
	})
	if !bytes.Equal(got, o.data) {
		u.t.Errorf("%s: node %d has %s", o.name, place, b3.Sum(got))
	}
}

// checkPaid lets the CLI go on with the upload at one node and again at another. The pool is paid
// once, by the rows of all parts.
func (u *uploads) checkPaid(up *rewardUpload) {
	u.t.Helper()
	for range 2 {
		u.cli("rewarder", "run", up.epoch, up.usage, "--policy", policyFile, "--key",
			filepath.Join(u.c.scratch, "policy.key"), "--pool", strconv.Itoa(rewardPool), "--json", "--timeout", "10s")
	}
	place := u.d.IntN(len(u.c.nodes))
	var one rewarder.UploadInfo
	u.until("the upload", func(ctx context.Context, _ int) error {
		opened, err := u.rewards[place].Open(ctx, up.open)
		if err != nil {
			return err
		}
		one, err = u.upload(ctx, place, opened.ID)
		return err
	})
	if one.State != rewarder.UploadUsed || one.Rows != uploadRows || int(one.Parts) != len(up.parts) {
		u.t.Errorf("the upload is %+v, want %d rows in %d parts", one, uploadRows, len(up.parts))
	}
	paid := newRewards(u.t, u.c, u.c.secret, "")
	paid.epochs = []string{up.epoch}
	must(u.t, paid.check(u.t.Context(), u.d))
}
