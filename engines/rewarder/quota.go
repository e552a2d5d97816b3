package rewarder

import (
	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
)

// uploadCost is the charge of an upload beside its rows: its own row and up to 64 inputs sealed
// from it. It also bounds the number of uploads.
const uploadCost = 64 << 10

// owner is a principal of a tenant. name is "" for uploads of schema 1.
type owner struct{ tenant, name string }

func ownerOf(tenant, name string) owner { return owner{tenant, name} }

// chargeOf is the room that one upload takes of the quota of its owner.
type charge struct {
	owner owner
	bytes uint64
}

// quota counts the uploads that no run uses. It is updated after each synced command, and a sweep
// recounts the file.
type quota struct {
	mu      *flow.Mutex
	uploads map[b3.Digest]charge // guarded by mu
	owners  map[owner]uint64     // bytes of uploads and reservations; guarded by mu
	all     uint64               // guarded by mu
	touched map[b3.Digest]bool   // uploads that changed during a recount; nil: none in progress; guarded by mu
}

func newQuota(c *flow.Catalog) *quota {
	return &quota{
		mu:      flow.NewMutex(c, service, flow.RankRunRegistry),
		uploads: map[b3.Digest]charge{},
		owners:  map[owner]uint64{},
	}
}

// reserve reserves n bytes for a command that is about to be committed, or returns a *QuotaError.
// The caller releases the reservation once the command was answered. By then set has charged its
// writes, unless its outcome is unknown.
func (u *quota) reserve(by owner, n uint64, limits *InputsConfig) (charge, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, q := range []struct {
		key  string
		used uint64
		most unit.Size
	}{
		{"rewarder.inputs.max_bytes_per_owner", u.owners[by], limits.MaxPerOwner},
		{"rewarder.inputs.max_bytes", u.all, limits.MaxBytes},
	} {
		if limit := uint64(q.most); q.used+n > limit {
			return charge{}, &QuotaError{q.key, q.used, limit}
		}
	}
	c := charge{by, n}
	u.add(c)
	return c, nil
}

// release releases a reservation.
func (u *quota) release(c charge) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sub(c)
}

// set replaces the charge of an upload. Zero bytes remove it.
func (u *quota) set(id b3.Digest, c charge) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.touched != nil {
		u.touched[id] = true
	}
	u.put(id, c)
}

// put replaces a charge. The caller holds mu.
func (u *quota) put(id b3.Digest, c charge) {
	u.sub(u.uploads[id])
	delete(u.uploads, id)
	if c.bytes > 0 {
		u.uploads[id] = c
		u.add(c)
	}
}

// add adds a charge. The caller holds mu.
func (u *quota) add(c charge) {
	u.owners[c.owner] += c.bytes
	u.all += c.bytes
}

// sub subtracts a charge. The caller holds mu.
func (u *quota) sub(c charge) {
	u.all -= c.bytes
	u.owners[c.owner] -= c.bytes
	if u.owners[c.owner] == 0 {
		delete(u.owners, c.owner)
	}
}

// begin starts a recount of the file.
func (u *quota) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.touched = map[b3.Digest]bool{}
}

// end applies a recount, except for uploads that changed since begin.
func (u *quota) end(counted map[b3.Digest]charge) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.uploads {
		if _, stays := counted[id]; !stays && !u.touched[id] {
			u.put(id, charge{})
		}
	}
	for id, c := range counted {
		if !u.touched[id] {
			u.put(id, c)
		}
	}
	u.touched = nil
}

// charge returns a function that charges an upload of a tenant after the command that changed it
// was synced.
func (e *Engine) charge(tenant string) func(Upload) {
	return func(up Upload) { e.quota.set(up.ID, chargeOf(&up, tenant)) }
}

func chargeOf(up *Upload, tenant string) charge {
	return charge{ownerOf(tenant, up.Owner), uploadCost + up.Bytes}
}
