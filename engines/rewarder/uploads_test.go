package rewarder_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

var (
	bob = rewarder.Call{
		By:     engines.Actor{CapID: "cap-bob", Principal: "bob", Scopes: []string{"rewarder.inputs"}},
		Tenant: rewarder.DefaultTenant,
	}
	admin = rewarder.Call{By: engines.Actor{Principal: "uid:0", Admin: true}, Tenant: rewarder.DefaultTenant}
	acme  = rewarder.Call{By: engines.Actor{CapID: "cap-acme", Principal: "carol", Tenant: "acme"}, Tenant: "acme"}
	wide  = rewarder.Call{
		By:     engines.Actor{CapID: "cap-wide", Principal: "dora", Tenant: "acme", Scopes: []string{rewarder.ScopeAdmin}},
		Tenant: "acme",
	}
)

// uploaded opens an upload with n actors.
func (r *rig) uploaded(by rewarder.Call, epoch string, n int) b3.Digest {
	r.t.Helper()
	up, err := r.e.OpenInput(r.ctx(), by, inputOf(epoch, 1000))
	if err == nil && n > 0 {
		_, err = r.e.PutPart(r.ctx(), by, up.ID, 0, false, many(n))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return up.ID
}

func (r *rig) listed(by rewarder.Call) (epochs []string) {
	r.t.Helper()
	page, err := r.e.Uploads(r.ctx(), by, b3.Digest{}, rewarder.MaxPage)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, u := range page.Uploads {
		epochs = append(epochs, u.EpochID+" "+u.State)
	}
	slices.Sort(epochs)
	return epochs
}

// rowsOf counts the rows in the buckets of uploads.
func (r *rig) rowsOf() (n int) {
	for _, b := range []*store.Bucket{rewarder.UploadRows.Bucket(), rewarder.ChunkRows.Bucket(),
		rewarder.InputRows.Bucket()} {
		keys, _ := r.rawRows(b)
		n += len(keys)
	}
	return n
}

// Callers list and drop their own uploads; holders of rewarder.admin those of their tenant, or of
// all. A run keeps its upload.
func TestUploadsAreListedAndDropped(t *testing.T) {
	r := newRig(t, inMemory).start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("used", 1000), many(3))
	r.mustCompute("used", in, p)
	r.await("used", rewarder.Settled)
	mine, theirs, other := r.uploaded(alice, "mine", 600), r.uploaded(bob, "theirs", 2), r.uploaded(acme, "other", 2)
	for _, tt := range []struct {
		by   rewarder.Call
		want []string
	}{
		{alice, []string{"mine open", "used used"}}, {bob, []string{"theirs open"}}, {acme, []string{"other open"}}, {wide, []string{"other open"}},
		{admin, []string{"mine open", "other open", "theirs open", "used used"}},
		{rewarder.Call{By: engines.Actor{CapID: "x", Principal: "eve"}, Tenant: rewarder.DefaultTenant}, nil},
	} {
		if got := r.listed(tt.by); !slices.Equal(got, tt.want) {
			t.Errorf("%s lists %v, want %v", tt.by.By.Principal, got, tt.want)
		}
	}
	for _, tt := range []struct {
		by   rewarder.Call
		id   b3.Digest
		want error
	}{
		{bob, mine, rewarder.ErrNotFound}, {wide, mine, rewarder.ErrNotFound}, {alice, b3.Sum([]byte("none")),
			rewarder.ErrNotFound}, {alice, mine, nil}, {alice, mine, rewarder.ErrNotFound},
		{wide, other, nil}, {admin, theirs, nil},
	} {
		if err := r.e.DropUpload(r.ctx(), tt.by, tt.id); !errors.Is(err, tt.want) {
			t.Errorf("%s drops: %v, want %v", tt.by.By.Principal, err, tt.want)
		}
	}
	for _, by := range []rewarder.Call{alice, admin} {
		if c, ok := asA[*rewarder.ConflictError](r.e.DropUpload(r.ctx(), by, uploadOf(in))); !ok || c.What != "upload" {
			t.Errorf("an upload that a run uses: %v", c)
		}
	}
	if n := r.rowsOf(); n != 3 {
		t.Errorf("%d rows are left, want the upload, the chunk and the input of the run", n)
	}
	if err := r.verify(); err != nil {
		t.Error(err)
	}
}

// uploadOf returns the upload that holds the rows of an input.
func uploadOf(in rewarder.Input) b3.Digest { return in.Upload }

// After an upload with a wrong first part is dropped, its declaration can be opened again. A sealed
// upload is dropped with its inputs, including the input of a failed run.
func TestDropUnlocksADeclaration(t *testing.T) {
	r := newRig(t, inMemory)
	id := r.uploaded(alice, "e", 1)
	if _, err := r.e.PutPart(r.ctx(), alice, id, 0, false, many(2)); err == nil {
		t.Fatal("another part 0 is taken")
	}
	if err := r.e.DropUpload(r.ctx(), alice, id); err != nil {
		t.Fatal(err)
	}
	in := r.seal(inputOf("e", 1000), many(2))
	if got, err := r.e.Input(r.ctx(), rewarder.DefaultTenant, in.InputsCID); err != nil || got.Upload != id {
		t.Errorf("%+v, %v", got, err)
	}
	r.fund(1) // another state of the ledger, and so another input
	again := r.seal2(id)
	if err := r.e.DropUpload(r.ctx(), alice, id); err != nil {
		t.Fatal(err)
	}
	for _, cid := range []b3.Digest{in.InputsCID, again.InputsCID} {
		if _, err := r.e.Input(r.ctx(), rewarder.DefaultTenant, cid); !errors.Is(err, rewarder.ErrNotFound) {
			t.Errorf("an input of a dropped upload: %v", err)
		}
	}
	if n := r.rowsOf(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func (r *rig) seal2(id b3.Digest) rewarder.Input {
	r.t.Helper()
	in, err := r.e.SealInput(r.ctx(), alice, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

// A user of the admin socket resumes an upload by way of any node of a cluster, which names its
// sockets after itself.
func TestUploadOfASocket(t *testing.T) {
	r := newRig(t, inMemory)
	uid := uint32(7)
	var ids []b3.Digest
	for _, principal := range []string{"uid:7", "01M8H1PH43ZP0212AVD05E0YY7/uid:7"} {
		by := rewarder.Call{By: engines.Actor{Principal: principal, UID: &uid}, Tenant: rewarder.DefaultTenant}
		ids = append(ids, r.uploaded(by, "e", 1))
		if got := r.listed(by); !slices.Equal(got, []string{"e open"}) {
			t.Errorf("%s lists %v", principal, got)
		}
	}
	if ids[0] != ids[1] {
		t.Error("the second node has another upload")
	}
}

// A declaration belongs to its principal: another principal of the tenant has an upload of its own,
// and neither can continue nor seal the other one. Equal rows make one input, which stays with the
// upload that was sealed first.
func TestUploadsOfTwoPrincipals(t *testing.T) {
	r := newRig(t, inMemory)
	theirs := r.uploaded(bob, "e", 1)
	mine := r.uploaded(alice, "e", 2)
	if mine == theirs {
		t.Fatal("one upload for two principals")
	}
	if _, err := r.e.PutPart(r.ctx(), bob, mine, 1, false, usage("zz requests 1")); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("another principal's part: %v", err)
	}
	if _, err := r.e.SealInput(r.ctx(), bob, mine); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("sealed by another principal: %v", err)
	}
	in := r.seal2(mine)
	equal, err := r.e.OpenInput(r.ctx(), admin, inputOf("e", 1000))
	if err == nil {
		_, err = r.e.PutPart(r.ctx(), admin, equal.ID, 0, false, many(2))
	}
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.e.SealInput(r.ctx(), admin, equal.ID); err != nil || again.InputsCID != in.InputsCID ||
		again.Upload != mine {
		t.Errorf("sealed again: %+v, %v", again, err)
	}
	if err := r.e.DropUpload(r.ctx(), admin, equal.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Input(r.ctx(), rewarder.DefaultTenant, in.InputsCID); err != nil {
		t.Errorf("the input of a dropped upload's twin: %v", err)
	}
}

// Uploads that no run uses are bounded per owner and in all. Used and dropped uploads are not
// counted, and a restart counts the same.
func TestUploadQuota(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.cfg.Inputs.MaxPerOwner, r.cfg.Inputs.MaxBytes = 1<<20+4096, 2<<20+4096
	}).start()
	over := func(by rewarder.Call, epoch, key string) {
		t.Helper()
		_, err := r.e.OpenInput(r.ctx(), by, inputOf(epoch, 1000))
		if q, ok := asA[*rewarder.QuotaError](err); !ok || q.Key != "rewarder.inputs."+key {
			t.Errorf("%s by %s: %v, want %s", epoch, by.By.Principal, err, key)
		}
	}
	p := policy()
	r.put(p)
	in := r.seal(inputOf("run", 1000), many(2))
	for i := range 14 {
		r.uploaded(alice, string(rune('a'+i)), 0)
	}
	big := r.uploaded(alice, "big", 0)
	if _, err := r.e.OpenInput(r.ctx(), alice, inputOf("big", 1000)); err != nil {
		t.Errorf("opened again at the limit: %v", err)
	}
	over(alice, "more", "max_bytes_per_owner")
	if _, err := r.e.PutPart(r.ctx(), alice, big, 0, false, many(9000)); !errors.As(err, new(*rewarder.QuotaError)) {
		t.Errorf("a part beyond the quota: %v", err)
	}
	r.mustCompute("run", in, p)
	r.await("run", rewarder.Settled)
	r.uploaded(alice, "run", 0) // again: it still counts for nothing
	r.uploaded(alice, "o", 0)   // in the place of what the run uses
	over(alice, "more", "max_bytes_per_owner")
	for i := range 16 {
		r.uploaded(bob, "b"+string(rune('a'+i)), 0)
	}
	over(acme, "more", "max_bytes")
	r.reboot()
	if err := r.e.Sweep(r.ctx()); err != nil {
		t.Fatal(err)
	}
	over(alice, "more", "max_bytes_per_owner")
	over(acme, "more", "max_bytes")
	if err := r.e.DropUpload(r.ctx(), alice, big); err != nil {
		t.Fatal(err)
	}
	r.uploaded(acme, "more", 0)
}

// An unsealed upload is dropped a week after its last part, and an interrupted drop is finished.
// Rows of schema 1 have no date and stay.
func TestUploadsExpire(t *testing.T) {
	r := newRig(t, inMemory, func(r *rig) { r.cfg.Inputs.Keep = unit.Duration(7 * 24 * time.Hour) })
	stale, fresh := r.uploaded(alice, "stale", 1500), r.uploaded(alice, "fresh", 1)
	r.seal(inputOf("sealed", 10), many(2))
	old := r.uploaded(alice, "old", 1)
	r.rawWrite(func(w *store.Writes) { rewarder.UploadRows.Put(w, old, r.asSchema1(old)) })
	r.clock.Add(int64(4 * 24 * time.Hour))
	if _, err := r.e.PutPart(r.ctx(), alice, fresh, 1, false, usage("zz requests 1")); err != nil {
		t.Fatal(err)
	}
	r.clock.Add(int64(3*24*time.Hour + time.Minute))
	if err := rewarder.BeginDrop(r.e, r.ctx(), alice, r.uploaded(alice, "cut", 2), "",
		func(store.Reader, *rewarder.Upload, *record.Snapshot) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.e.Sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.listed(admin), []string{"fresh open", "old open", "sealed sealed"}; !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
	if keys, _ := r.rawRows(rewarder.ChunkRows.Bucket()); len(keys) != 3 {
		t.Errorf("%d chunks are left", len(keys))
	}
	if got, want := r.listed(alice), []string{"fresh open", "sealed sealed"}; !slices.Equal(got, want) {
		t.Errorf("alice lists %v: an upload of schema 1 has no owner", got)
	}
	if err := r.e.DropUpload(r.ctx(), admin, old); err != nil {
		t.Error(err)
	}
	if got := r.e.QuotaUsed(); got != 2*rewarder.UploadCost+r.bytesOf(fresh)+r.bytesOf(r.sealedID()) {
		t.Errorf("%d bytes are counted", got)
	}
	if _, _, err := rewarder.UploadOf(r.e, r.ctx(), admin, stale); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("the stale one: %v", err)
	}
}

func (r *rig) sealedID() b3.Digest {
	page, _ := r.e.Uploads(r.ctx(), admin, b3.Digest{}, rewarder.MaxPage)
	at := slices.IndexFunc(page.Uploads, func(u rewarder.UploadInfo) bool { return u.State == rewarder.UploadSealed })
	return page.Uploads[at].ID
}

func (r *rig) bytesOf(id b3.Digest) uint64 {
	up, err := rewarder.Marked(r.e, r.ctx(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return up.Bytes
}

// asSchema1 rewrites the row of an upload in the form of the previous schema.
func (r *rig) asSchema1(id b3.Digest) rewarder.Upload {
	up, err := rewarder.Marked(r.e, r.ctx(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	up.Owner, up.Bytes, up.Created, up.Changed = "", 0, 0, 0
	return up
}

// A page is bounded by the rows that it visits, even if none of them is the caller's, and next
// continues after it.
func TestUploadPages(t *testing.T) {
	r := newRig(t, inMemory)
	for i := range 5 {
		r.uploaded(alice, strings.Repeat("e", i+1), 0)
	}
	var all []b3.Digest
	after := b3.Digest{}
	for pages := 0; ; pages++ {
		page, err := r.e.Uploads(r.ctx(), alice, after, 2)
		if err != nil || len(page.Uploads) > 2 || pages > 3 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, u := range page.Uploads {
			all = append(all, u.ID)
		}
		if page.Next == "" {
			break
		}
		after, _ = b3.Parse(page.Next)
	}
	if len(all) != 5 || len(slices.Compact(slices.Clone(all))) != 5 {
		t.Errorf("%d uploads: %v", len(all), all)
	}
}
