package auth

import (
	"hash/maphash"
	"sync"
)

// Bounds of the memory for proven tokens: what a busy node sees between two rotations, in about 2 MB, 16 if all are narrowed as far as fits.
const (
	maxProven      = 512  // tokens of one generation, of two
	maxProvenToken = 1024 // bytes; what is longer is verified each time
)

// proven remembers tokens whose MAC was found right, with their caveats already read, so that a token in steady use costs one hash. Whether
// it still stands and what it allows is judged anew each time.
type proven struct {
	seed   maphash.Seed // nobody outside knows which tokens meet in one place, so looking one up tells nothing of the others
	mu     sync.Mutex
	young  map[uint64]*policy // guarded by mu
	former map[uint64]*policy // guarded by mu
}

func newProven() *proven {
	return &proven{seed: maphash.MakeSeed(), young: make(map[uint64]*policy)}
}

// get finds a token's policy, and keeps it for another generation.
func (p *proven) get(token string) *policy {
	key := maphash.String(p.seed, token)
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.young[key]
	if !ok {
		if found, ok = p.former[key]; ok {
			p.keep(key, found)
		}
	}
	if !ok || found.token != token {
		return nil
	}
	return found
}

func (p *proven) put(found *policy) {
	if len(found.token) > maxProvenToken {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(maphash.String(p.seed, found.token), found)
}

// keep wants mu held.
func (p *proven) keep(key uint64, found *policy) {
	if len(p.young) >= maxProven {
		p.former, p.young = p.young, make(map[uint64]*policy, maxProven)
	}
	p.young[key] = found
}
