package registry

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// metaKeys are all keys of reg/meta.
var metaKeys = []string{keyHead, keyOrigin, keyGenesis, keyMin, keyAuditMin, keyAuditHead, keySchema, keyTree, keyCheckpoint, keyAdopted, keyAdoptedOld, keyObjections}

// endings are the events that end a proposal without a version, and the state after them.
var endings = map[string]string{"proposal.withdrawn": StateWithdrawn, "proposal.expired": StateExpired, "proposal.stale": StateStale}

// sides checks the rows that stand beside a verified log against it: what reg/meta says of it, how each proposal ended, and what
// is pending. What a catch-up has replayed was never pending here, and a proposal older than
// the oldest audit record may have no record of how it was made.
type sides struct {
	logReader
	head  record.Head
	min   uint64
	set   *record.SignerSet // in force
	begin time.Time         // of the audit records, zero: none is gone
	told  map[ulid.ULID]*story
	fault *rverify.Problem // the first
}

// story is what the audit chain tells of a proposal that has become no version.
type story struct {
	made, ended *record.Audit
	approvals   map[string]b3.Digest // by signer; zero: an older record, which names no bytes
	loose       bool                 // it may have gone on in another copy of the log
}

// sides answers the first fault, or nil; the error is ctx's alone.
func (l logReader) sides(ctx context.Context, head record.Head) (p *rverify.Problem, err error) {
	s := &sides{logReader: l, head: head, told: map[ulid.ULID]*story{}}
	defer func() {
		switch row := recover().(type) {
		case nil:
		case *store.RowError:
			p = &rverify.Problem{Kind: rverify.KindIncomplete, Detail: row.Error()}
		default:
			panic(row)
		}
	}()
	s.meta()
	s.audits(ctx)
	s.outcomes(ctx)
	if ctx.Err() == nil {
		s.pending()
	}
	return s.fault, context.Cause(ctx)
}

// must keeps the first fault.
func (s *sides) must(holds bool, version uint64, format string, args ...any) {
	if !holds && s.fault == nil {
		s.fault = &rverify.Problem{Kind: rverify.KindChain, Version: version, Detail: fmt.Sprintf(format, args...)}
	}
}

// meta holds reg/meta against the genesis, and where the versions begin against those that are there.
func (s *sides) meta() {
	for k := range s.r.Range(bMeta, nil, nil) {
		s.must(slices.Contains(metaKeys, string(k)), 0, "reg/meta has an unknown row %q", k)
	}
	metaAdopted.Get(s.r, keyAdopted) // its checksum
	metaObjections.Get(s.r, keyObjections)
	if s.head.Version == 0 {
		return
	}
	s.min, _ = metaNumber.Get(s.r, keyMin)
	for _, set := range epochs.All(s.r) {
		s.set, _ = record.ParseSignerSet(set.set)
	}
	s.must(s.min >= 1 && s.min <= s.head.Version && (s.min == 1) != metaNumber.Has(s.r, keyAuditMin), 0, "the oldest version is not %d", s.min) // later ones were checked
	raw, _ := entries.Get(s.r, 1)
	first, err := record.ParseEntry(raw)
	origin, _ := metaRaw.Get(s.r, keyOrigin)
	genesis, _ := metaRaw.Get(s.r, keyGenesis)
	schema, _ := metaRaw.Get(s.r, keySchema)
	s.must(err == nil && string(origin) == first.Origin && bytes.Equal(genesis, first.PayloadB3[:]) && string(schema) == schemaVersion,
		1, "reg/meta names another origin, genesis or schema")
}

// audits collects what the audit chain tells of proposals, and demands the outcome of each version.
func (s *sides) audits(ctx context.Context) {
	first, _ := metaNumber.Get(s.r, keyAuditMin)
	for seq, raw := range audits.All(s.r) {
		rec, err := record.ParseAudit(raw)
		s.must(err == nil, 0, "audit record %d: %v", seq, err) // the chain was checked, but not what is on its way out
		if ctx.Err() != nil || s.fault != nil {
			return
		}
		if seq == first {
			s.begin = timeOf(rec)
		}
		if rec.Decision == record.DecisionAccept {
			s.follow(rec)
		}
	}
}

func timeOf(rec *record.Audit) time.Time {
	at, _ := record.ParseTime(rec.At) // its form was checked
	return at
}

// follow takes one step of a proposal.
func (s *sides) follow(rec *record.Audit) {
	id, err := parseID(rec.ProposalID)
	switch {
	case rec.Event == rollbackAdopted:
		for _, st := range s.told {
			st.loose = true
		}
	case rec.Event == eventForgotten:
		for id, st := range s.told {
			if st.ended != nil && timeOf(rec).Sub(timeOf(st.ended)) >= keepOutcomes && !doneOutcome.Has(s.r, id) {
				delete(s.told, id)
			}
		}
	case err != nil:
	case rec.Commits():
		delete(s.told, id)
		how, known := doneOutcome.Get(s.r, id)
		s.must(!known && rec.Version < s.min || how.State == StateCommitted && how.Version == rec.Version,
			rec.Version, "the outcome of %s is missing or another one", rec.ProposalID)
	case rec.Event == eventProposed:
		s.story(id).made = rec
	case rec.Event == eventApproved && len(rec.Signers) == 1:
		s.story(id).approvals[rec.Signers[0]] = rec.ApprovalB3
	case endings[rec.Event] != "":
		s.story(id).ended = rec
	}
}

func (s *sides) story(id ulid.ULID) *story {
	if s.told[id] == nil {
		s.told[id] = &story{approvals: map[string]b3.Digest{}}
	}
	return s.told[id]
}

// take gives the story of a proposal whose row was found; cut if records of it are gone.
func (s *sides) take(id ulid.ULID) (st *story, cut bool) {
	defer delete(s.told, id)
	return s.story(id), !ulid.Time(id.Time()).After(s.begin)
}

// outcomes holds how proposals ended against the entries and the audit chain, and the weight of the log against its rows.
func (s *sides) outcomes(ctx context.Context) {
	tree, _ := metaTree.Get(s.r, keyTree)
	var weight int64
	for id, how := range doneOutcome.All(s.r) {
		if ctx.Err() != nil || s.fault != nil {
			return
		}
		if how.State == StateCommitted {
			raw, _ := entries.Get(s.r, how.Version)
			e, err := record.ParseEntry(raw)
			at, _ := record.ParseTime(how.CommittedAt)
			s.must(err == nil && e.ProposalID == idText(id) && e.Hash() == how.Hash && e.PayloadB3 == how.PayloadB3 && e.CommittedAt == how.CommittedAt &&
				at.UnixMilli() == how.AtMS, how.Version, "%s has ended otherwise than the entry says", idText(id))
			if how.Version <= tree.Size {
				weight += int64(len(raw) + len(s.r.Get(bPayload, store.U64().Append(nil, how.Version))))
			}
			continue
		}
		st, _ := s.take(id)
		end := st.ended
		s.must(how.CommittedAt == "" && how.Hash.IsZero() && end != nil && endings[end.Event] == how.State &&
			end.Version == how.Version && end.PayloadB3 == how.PayloadB3 && timeOf(end).UnixMilli() == how.AtMS,
			how.Version, "%s has ended otherwise than the audit chain says", idText(id))
	}
	s.must(tree.Bytes == weight, 0, "the log weighs %d bytes, reg/meta says %d", weight, tree.Bytes)
}

// pending holds live proposals against the audit chain, and the indexes against them.
func (s *sides) pending() {
	live, signed := 0, 0
	for id, p := range props.All(s.r) {
		live++
		signed += s.proposal(id, p)
	}
	s.must(count(propByB3, s.r) == live && count(propExpiry, s.r) == live && count(approvals, s.r) == signed, 0, "a row of no pending proposal")
	for id, st := range s.told {
		s.must(st.loose, 0, "%s is neither pending nor ended", idText(id))
	}
}

func count[K, V any](t store.Table[K, V], r store.Reader) (n int) {
	for range t.All(r) {
		n++
	}
	return n
}

// proposal checks one that is pending, and answers how many approvals it has.
func (s *sides) proposal(id ulid.ULID, p storedProp) (signed int) {
	st, cut := s.take(id)
	row, name, made := p.row, idText(id), st.made
	payload, err := s.codec.payload(p.packed)
	if err != nil {
		s.must(false, row.Version, "%s: payload: %v", name, err)
		return 0
	}
	twin, _ := propByB3.Get(s.r, row.PayloadB3)
	s.must(payload.B3() == row.PayloadB3 && payload.Version == row.Version && payload.PrevHash == row.PrevHash && int64(len(payload.Bytes())) == row.Bytes &&
		twin == id && propExpiry.Has(s.r, expiry{uint64(row.ExpiresMS), id}), row.Version, "%s is not its payload, or not in the indexes", name)
	s.must((st.ended == nil || st.loose) && (made == nil && cut || made != nil && made.PayloadB3 == row.PayloadB3 && made.Version == row.Version &&
		timeOf(made).UnixMilli() == row.CreatedMS && owner(engines.Actor{CapID: made.Actor.CapID, UID: made.Actor.UID}) == clip(row.Owner)),
		row.Version, "%s is pending otherwise than the audit chain says", name)
	from, to := ofProposal(id)
	for k, raw := range approvals.Range(s.r, from, to) {
		signed++
		a, err := record.ParseApproval(raw)
		signer, known := payload.Approver(s.set, a.SignerID)
		sum := st.approvals[a.SignerID]
		s.must(err == nil && known && bytes.Equal(a.Bytes(), raw) && keyOf(signer) == k.key && (sum.IsZero() || sum == b3.Sum(raw)) &&
			record.VerifyApproval(a, signer, row.PayloadB3) == nil, row.Version, "%s has an approval that was not recorded", name)
	}
	s.must(st.loose || cut || signed == len(st.approvals), row.Version, "%s has lost an approval", name)
	return signed
}
