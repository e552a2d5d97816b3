package edge

import (
	"fmt"
	"maps"
	"slices"
)

// generation is the state of all packs. It is never changed: PackSet.update publishes another.
type generation struct {
	packs map[string]packEntry // by id
	rows  map[string]packRow   // by file name: outcomes of verifications
}

// packEntry is a pack of a generation, which holds pack and next open.
type packEntry struct {
	info    PackInfo
	path    string
	pack    *Pack // serves, unless its state is changed; nil: there is none
	next    *Pack // takes the place of pack once it is verified; nil: there is none
	want    stamp // of the file that is to be opened; zero: none
	refused stamp // of the file that was refused last; zero: none
}

func (g *generation) clone() *generation {
	return &generation{packs: maps.Clone(g.packs), rows: maps.Clone(g.rows)}
}

func (g *generation) ids() []string { return slices.Sorted(maps.Keys(g.packs)) }

// open returns the packs that g holds open.
func (g *generation) open() map[*Pack]bool {
	open := map[*Pack]bool{}
	for _, e := range g.packs {
		for _, p := range []*Pack{e.pack, e.next} {
			if p != nil {
				open[p] = true
			}
		}
	}
	return open
}

// unverified returns the pack of e that is to be verified, nil if there is none.
func (e packEntry) unverified() *Pack {
	if e.next != nil {
		return e.next
	}
	if e.pack != nil && (e.info.State == PackVerifying || e.info.State == PackChanged) {
		return e.pack
	}
	return nil
}

// changedInPlace is the fault of a pack that has changed.
const changedInPlace = "its file was changed in place: replace packs by renaming"

// settled reports whether every pack of g is open and verified, or has failed.
func (g *generation) settled() bool {
	for _, e := range g.packs {
		if e.want != (stamp{}) || e.unverified() != nil {
			return false
		}
	}
	return true
}

// serves reports whether requests are answered from e.pack.
func (e packEntry) serves() bool { return e.pack != nil && e.info.State != PackChanged }

// failed returns e after its file with a stamp was refused. A pack that serves goes on.
func (e packEntry) failed(refused stamp, fault string) packEntry {
	e.next, e.refused = nil, refused
	if e.serves() {
		e.info.Next = PackFailed
		e.info.Fault = fmt.Sprintf("%s, which is to take its place, is refused: %s", e.info.File, fault)
		return e
	}
	e.pack = nil
	e.info.State, e.info.Next, e.info.Fault = PackFailed, "", fault
	return e
}

// opened returns e with a file that was opened. It serves at once if its digest is remembered, or
// as the first one under its id; any other waits until it is verified.
func (e packEntry) opened(p *Pack, row packRow) packEntry {
	e.want, e.next = stamp{}, nil
	switch state := e.info.State; {
	case row.stamp() == p.stamp && row.Fault == "":
		e.pack, e.info = p, p.info
		e.info.verified(row.Digest, row.Tiles)
	case state == PackOpening:
		e.pack, e.info = p, p.info
	case state == PackChanged:
		e.pack, e.info = p, p.info
		e.info.State, e.info.Fault = PackChanged, changedInPlace
	default:
		e.next, e.info.Next = p, PackVerifying
		if e.serves() {
			e.info.Fault = ""
		}
	}
	return e
}

// listed returns e for a file with a stamp that was found under its id. retry has one that was
// refused opened again.
func (e packEntry) listed(file stamp, row packRow, retry bool) packEntry {
	switch {
	case e.pack != nil && e.pack.stamp == file:
		e.next, e.want, e.refused = nil, stamp{}, stamp{}
		if e.info.Next != "" {
			e.info.Next, e.info.Fault = "", ""
		}
	case e.next != nil && e.next.stamp == file || e.want == file || e.refused == file && !retry:
	case e.info.State == PackOpening && row.stamp() == file && row.Fault != "" && !retry:
		e = e.failed(file, row.Fault)
	default:
		if e.pack != nil && e.pack.stamp.inode == file.inode {
			e.pack, e.info.State, e.info.Fault = nil, PackChanged, changedInPlace
		}
		e.want, e.next = file, nil
		if e.info.Next == PackVerifying {
			e.info.Next = ""
		}
	}
	return e
}
