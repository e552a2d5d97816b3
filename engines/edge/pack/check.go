package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/unit"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tile"
)

// mostFaults bounds the faults that are kept of a pack.
const mostFaults = 100

// Report is the result of a verification.
type Report struct {
	Info   Info
	Faults []string // the first 100 that refuse the pack; empty if it is served
	late   bool     // the only fault is that the check took too long
}

// with returns r with more faults.
func (r Report) with(faults []string) Report {
	r.Faults = append(r.Faults, faults...)
	if len(r.Faults) > 0 {
		r.Info.State, r.Info.Fault, r.Info.Checked = asset.PackFailed, r.Faults[0], false
	}
	return r
}

// errBudget is the cause of the context of a check that took too long.
var errBudget = errors.New("edge: the check took too long")

// check checks the structure of the pack and a sample of its tiles within its budget. The report is
// late if the budget was exceeded and no other fault was found. The error is that of reading the
// file, or the cause of ctx.
func (p *Pack) check(ctx context.Context) (Report, error) {
	budget := p.env.cfg.budget(p.stamp.size)
	within, cancel := context.WithTimeoutCause(ctx, budget, errBudget)
	defer cancel()
	k := checkup{p: p}
	for _, f := range p.found {
		k.add(f)
	}
	tiles, err := p.archive.Verify(within, tile.Check{Found: k.add, Sample: k.read})
	r := Report{Info: p.info}
	r.Info.Tiles, r.Info.Checked = tiles, true
	if errors.Is(err, errBudget) {
		r.late = len(k.faults) == 0
		return r.with(append(k.faults, fmt.Sprintf(
			"the check took more than %s: edge.packs.verify_base and verify_rate allow no more for %d bytes",
			unit.Short(budget), p.stamp.size))), nil
	}
	if err != nil {
		return r, err
	}
	k.judge(&r.Info)
	r.Info.Warnings, r.Info.Skipped = k.warnings, k.skipped
	return r.with(k.faults), nil
}

// checkup collects the findings of a check, the warnings of a kind in one.
type checkup struct {
	p        *Pack
	faults   []string
	warnings []tile.Finding
	skipped  uint64 // tiles
	sample   sample
}

// sample counts the tiles that a check has read.
type sample struct {
	read, tried, bad, other int            // tiles; decoded, in vain, in another coding than is declared
	coding                  Coding         // of the last tile
	odd                     Coding         // of the last tile in another coding
	fault                   error          // of the first bad tile
	formats                 map[Format]int // tiles by their first bytes
	width                   int            // of the first picture, in pixels
}

// add adds a finding.
func (k *checkup) add(f tile.Finding) {
	if f.Fatal {
		if len(k.faults) < mostFaults {
			k.faults = append(k.faults, valid(f.Text))
		}
		return
	}
	if f.Skips() {
		k.skipped += f.Count
	}
	i := slices.IndexFunc(k.warnings, func(w tile.Finding) bool { return w.Code == f.Code })
	if i >= 0 {
		k.warnings[i].Count += f.Count
		return
	}
	f.Text = clip(f.Text)
	k.warnings = append(k.warnings, f)
}

// read decodes a tile of the sample. A tile that is longer than a client is sent decodes.
func (k *checkup) read(stored []byte) {
	s := &k.sample
	s.read++
	declared := k.p.declared
	s.coding = tile.CodingOf(stored, declared, cmp.Or(k.p.info.Format, tile.MVT))
	if declared != tile.Unknown && s.coding != declared || declared == tile.Unknown && s.coding == tile.Deflate {
		s.other++
		s.odd = s.coding
	}
	if !s.coding.Decodes() {
		return
	}
	s.tried++
	b, err := s.coding.Decode(stored, maxDecoded)
	if errors.Is(err, tile.ErrUndecodable) {
		s.bad++
		s.fault = cmp.Or(s.fault, err)
		return
	}
	if s.formats == nil {
		s.formats = map[Format]int{}
	}
	s.formats[tile.Sniff(b)]++
	s.width = cmp.Or(s.width, tile.Width(b))
}

// judge derives the format and further findings from the sample.
func (k *checkup) judge(i *Info) {
	s, most := &k.sample, Format("")
	for _, f := range []Format{tile.MVT, tile.PNG, tile.JPG, tile.WebP, tile.AVIF} {
		if s.formats[f] > s.formats[most] {
			most = f
		}
	}
	declared := i.Format
	i.Format, i.TileSize = tile.Guess(declared, most, s.coding), s.width
	text, count := "", s.formats[most]
	switch {
	case declared == "" && k.p.format != "":
		text, count = fmt.Sprintf("%.40q names no format of tiles", k.p.format), 1
	case declared != "" && declared != i.Format:
		text = fmt.Sprintf("%d of %d tiles that were read are %s, not %s", count, s.read, i.Format, declared)
	}
	k.count(tile.CodeFormat, count, text)
	if s.bad > 0 && s.bad == s.tried {
		k.faults = append(k.faults, fmt.Sprintf("none of %d tiles that were read decodes: %v", s.bad, s.fault))
		return
	}
	if s.bad > 0 {
		k.count(tile.CodeUndecodable, s.bad, fmt.Sprintf("%d of %d tiles that were read do not decode: %v", s.bad,
			s.read, s.fault))
	}
	if s.other > 0 {
		want := k.p.declared
		if want == tile.Unknown {
			want = Gzip // by the specification of MBTiles
		}
		k.count(tile.CodeCoding, s.other, fmt.Sprintf("%d of %d tiles that were read have the coding %s, not %s",
			s.other, s.read, cmp.Or(s.odd, "none"), cmp.Or(want, "none")))
	}
}

// count adds a warning of n tiles, unless text is empty.
func (k *checkup) count(code tile.Code, n int, text string) {
	if text != "" {
		k.add(tile.Finding{Code: code, Text: text, Count: uint64(n)})
	}
}
