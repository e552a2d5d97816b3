package sites

import (
	"ronbox/appliance/b3"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Bounds of parsed manifests.
const (
	ParseSlots    = parseSlots
	ManifestBytes = manifestBytes
)

// TakeSlot takes one of the slots in which manifests are parsed, and Release frees it.
func (s *Server) TakeSlot() bool { return s.manifests.slots.TryAcquire() }
func (s *Server) Release()       { s.manifests.slots.Release() }

// Parsing returns how many manifests are parsed, or wait for that.
func (s *Server) Parsing() int { return s.manifests.flights.Len() }

// Add lists the objects of a manifest, even if the manifest is listed.
func (s *Server) Add(h near.Hint, m *site.Manifest) { s.listing.add(&openedSite{h, ObjectsOf(m)}) }

// Listed returns the number of manifests that are listed, and of their objects.
func (s *Server) Listed() (manifests, files int) { return len(s.listing.all), s.listing.files }

// Parsed returns how many of the manifests are in memory, and their bytes.
func (s *Server) Parsed(all ...b3.Digest) (n int, bytes int64) {
	s.manifests.cache.Settle()
	for _, d := range all {
		if p, ok := s.manifests.cache.Get(string(d[:])); ok {
			n, bytes = n+1, bytes+p.cost()
		}
	}
	return n, bytes
}
