package tables

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// metaKeys lists all keys of reg/meta.
var metaKeys = []string{
	KeyHead, KeyOrigin, KeyGenesis, KeyMin, KeyAuditMin, KeyAuditHead, keySchema, KeyTree, KeyCheckpoint,
	KeyAdopted, KeyAdoptedOld, KeyObjections, KeyVerified, KeyFollowed, KeyFollowFault,
}

// sides compares the rows beside a verified log with it: reg/meta, the outcomes of proposals, and
// the live proposals. A version that a catch-up has replayed was never pending in this file. A
// proposal older than the oldest audit record may have no record of its creation.
type sides struct {
	Log
	head    record.Head
	min     uint64
	set     *record.SignerSet // in force
	begin   time.Time         // of the oldest audit record; zero if none was removed
	stories map[ulid.ULID]*story
	fault   *rverify.Problem // the first
}

// story collects the audit records of a proposal that did not become a version.
type story struct {
	made, ended *record.Audit
	approvals   map[string]b3.Digest // by signer; zero: an older record, which does not name the bytes
	loose       bool                 // another copy of the log may have ended it
}

// sides returns the first fault, or nil. The error is the cause of ctx.
func (l Log) sides(ctx context.Context, head record.Head) (p *rverify.Problem, err error) {
	s := &sides{Log: l, head: head, stories: map[ulid.ULID]*story{}}
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

// must records a fault, if it is the first, unless holds is true.
func (s *sides) must(holds bool, version uint64, format string, args ...any) {
	if !holds && s.fault == nil {
		s.fault = &rverify.Problem{Kind: rverify.KindChain, Version: version, Detail: fmt.Sprintf(format, args...)}
	}
}

// condition is one comparison of a row with its source.
type condition struct {
	holds bool
	name  string
}

// all demands that each condition holds. A fault names the subject and the condition that failed.
func (s *sides) all(version uint64, subject string, conditions ...condition) {
	for _, c := range conditions {
		s.must(c.holds, version, "%s: %s", subject, c.name)
	}
}

// meta compares reg/meta with the genesis, and the recorded first version with the limits of the
// log. Reading the summed rows checks their checksums.
func (s *sides) meta() {
	for k := range s.R.Range(MetaBucket, nil, nil) {
		s.must(slices.Contains(metaKeys, string(k)), 0, "reg/meta has an unknown row %q", k)
	}
	MetaAdopted.Get(s.R, KeyAdopted)
	MetaObjections.Get(s.R, KeyObjections)
	MetaVerified.Get(s.R, KeyVerified)
	MetaFollowFault.Get(s.R, KeyFollowFault)
	followed, copied := MetaFollowed.Get(s.R, KeyFollowed)
	if s.head.Version == 0 {
		return
	}
	s.min, _ = MetaNumber.Get(s.R, KeyMin)
	for _, set := range Epochs.All(s.R) {
		s.set, _ = record.ParseSignerSet(set.Set) // verified before
	}
	raw, _ := Entries.Get(s.R, 1)
	first, err := record.ParseEntry(raw)
	if err != nil {
		s.must(false, 1, "entry: %v", err)
		return
	}
	origin, _ := MetaRaw.Get(s.R, KeyOrigin)
	genesis, _ := MetaRaw.Get(s.R, KeyGenesis)
	schema, _ := MetaRaw.Get(s.R, keySchema)
	s.all(1, "reg/meta",
		condition{s.min >= 1 && s.min <= s.head.Version, fmt.Sprintf("min_version is %d", s.min)},
		condition{
			(s.min > 1 && !copied) == MetaNumber.Has(s.R, KeyAuditMin), "min_version and audit_min do not go together",
		},
		condition{string(origin) == first.Origin, "the origin is not that of genesis"},
		condition{bytes.Equal(genesis, first.PayloadB3[:]), "the genesis is not version 1"},
		condition{!copied || followed.Genesis == first.PayloadB3, "the followed genesis is not version 1"},
		condition{string(schema) == schemaVersion, "the schema is unknown"})
}

// audits collects the stories of proposals from the audit chain, and demands the outcome of each
// version.
func (s *sides) audits(ctx context.Context) {
	first, _ := MetaNumber.Get(s.R, KeyAuditMin)
	for seq, raw := range Audits.All(s.R) {
		rec, err := record.ParseAudit(raw) // the verified chain begins at audit_min; older rows await deletion
		s.must(err == nil, 0, "audit record %d: %v", seq, err)
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
	at, _ := record.ParseTime(rec.At) // ParseAudit has checked it
	return at
}

// follow adds an audit record to the story of its proposal.
func (s *sides) follow(rec *record.Audit) {
	id, err := ParseID(rec.ProposalID)
	switch {
	case rec.Event == EventAdopted:
		for _, st := range s.stories {
			st.loose = true
		}
	case rec.Event == EventForgotten:
		for id, st := range s.stories {
			if st.ended != nil && timeOf(rec).Sub(timeOf(st.ended)) >= KeepOutcomes && !DoneOutcome.Has(s.R, id) {
				delete(s.stories, id)
			}
		}
	case err != nil:
	case rec.Commits():
		delete(s.stories, id)
		how, known := DoneOutcome.Get(s.R, id)
		pruned := !known && rec.Version < s.min
		s.must(pruned || how.State == document.StateCommitted && how.Version == rec.Version, rec.Version,
			"%s: its outcome is missing or not that version", rec.ProposalID)
	case rec.Event == EventProposed:
		s.story(id).made = rec
	case rec.Event == EventApproved && len(rec.Signers) == 1:
		s.story(id).approvals[rec.Signers[0]] = rec.ApprovalB3
	case EndState(rec.Event) != "":
		s.story(id).ended = rec
	}
}

func (s *sides) story(id ulid.ULID) *story {
	if s.stories[id] == nil {
		s.stories[id] = &story{approvals: map[string]b3.Digest{}}
	}
	return s.stories[id]
}

// take removes and returns the story of a proposal whose row exists. cut reports whether records of
// it may have been removed.
func (s *sides) take(id ulid.ULID) (st *story, cut bool) {
	st = s.story(id)
	delete(s.stories, id)
	return st, !ulid.Time(id.Time()).After(s.begin)
}

// outcomes compares the outcomes of proposals with entries and audit records, and the recorded
// bytes of the log with its rows.
func (s *sides) outcomes(ctx context.Context) {
	tree, _ := MetaTree.Get(s.R, KeyTree)
	var stored int64
	for id, how := range DoneOutcome.All(s.R) {
		if ctx.Err() != nil || s.fault != nil {
			return
		}
		if how.State == document.StateCommitted {
			stored += s.committed(id, how)
		} else {
			s.ended(id, how)
		}
	}
	s.must(tree.Bytes == stored, 0, "reg/meta tree: the log has %d bytes, not %d", stored, tree.Bytes)
}

// committed compares the outcome of a version with its entry. It returns the stored bytes of the
// version.
func (s *sides) committed(id ulid.ULID, how DoneRow) int64 {
	raw, _ := Entries.Get(s.R, how.Version)
	packed, _ := Payloads.Get(s.R, how.Version)
	e, err := record.ParseEntry(raw)
	if err != nil {
		s.must(false, how.Version, "%s: entry: %v", IDText(id), err)
		return 0
	}
	at, _ := record.ParseTime(how.CommittedAt)
	s.all(how.Version, "outcome of "+IDText(id),
		condition{e.ProposalID == IDText(id), "the entry names another proposal"},
		condition{e.Hash() == how.Hash, "the hash is not that of the entry"},
		condition{e.PayloadB3 == how.PayloadB3, "the payload is not that of the entry"},
		condition{e.CommittedAt == how.CommittedAt && at.UnixMilli() == how.AtMS, "the time is not that of the entry"})
	return int64(len(raw) + len(packed))
}

// ended compares the outcome of a proposal that did not become a version with its audit records.
func (s *sides) ended(id ulid.ULID, how DoneRow) {
	st, _ := s.take(id)
	if st.ended == nil {
		s.must(false, how.Version, "outcome of %s: no audit record ends it", IDText(id))
		return
	}
	s.all(how.Version, "outcome of "+IDText(id),
		condition{how.CommittedAt == "" && how.Hash.IsZero(), "it has the hash or the time of a version"},
		condition{EndState(st.ended.Event) == how.State, "the state is not that of the audit record"},
		condition{st.ended.Version == how.Version, "the version is not that of the audit record"},
		condition{st.ended.PayloadB3 == how.PayloadB3, "the payload is not that of the audit record"},
		condition{timeOf(st.ended).UnixMilli() == how.AtMS, "the time is not that of the audit record"})
}

// pending compares the live proposals with their audit records, and demands that no other approval,
// expiry or story is left.
func (s *sides) pending() {
	live, signed := 0, 0
	for id, p := range props.All(s.R) {
		live++
		signed += s.proposal(id, p)
	}
	s.must(count(propExpiry, s.R) == live, 0, "reg/prop_exp has a row that is not of a live proposal")
	s.must(count(approvals, s.R) == signed, 0, "reg/appr has a row that is not of a live proposal")
	for id, st := range s.stories {
		s.must(st.loose, 0, "%s is neither pending nor ended", IDText(id))
	}
}

func count[K, V any](t store.Table[K, V], r store.Reader) (n int) {
	for range t.All(r) {
		n++
	}
	return n
}

// proposal checks a live proposal and its approvals. It returns the number of approvals.
func (s *sides) proposal(id ulid.ULID, p StoredProp) (signed int) {
	st, cut := s.take(id)
	row, name := p.Row, IDText(id)
	payload, err := s.Codec.Payload(p.Packed)
	if err != nil {
		s.must(false, row.Version, "%s: payload: %v", name, err)
		return 0
	}
	s.must(RowFits(row, payload), row.Version, "%s: its row is not that of its payload", name)
	s.must(CheckExpiry(s.R, id, row) == nil, row.Version, "%s: its expiry is not in reg/prop_exp", name)
	s.must(st.ended == nil || st.loose, row.Version, "%s: an audit record has ended it", name)
	s.must(st.made != nil || cut, row.Version, "%s: no audit record creates it", name)
	if made := st.made; made != nil {
		by := OwnerOf(engines.Actor{CapID: made.Actor.CapID, UID: made.Actor.UID})
		s.all(row.Version, name,
			condition{made.PayloadB3 == row.PayloadB3, "the payload is not that of the audit record"},
			condition{made.Version == row.Version, "the version is not that of the audit record"},
			condition{timeOf(made).UnixMilli() == row.CreatedMS, "the time is not that of the audit record"},
			condition{by == ClipText(row.Owner), "the owner is not that of the audit record"})
	}
	from, to := ofProposal(id)
	for k, raw := range approvals.Range(s.R, from, to) {
		signed++
		s.approval(name, st, payload, k.key, raw)
	}
	s.must(st.loose || cut || signed == len(st.approvals), row.Version, "%s: an approval is missing", name)
	return signed
}

// approval checks one approval of a live proposal.
func (s *sides) approval(name string, st *story, payload *record.Payload, key b3.Digest, raw []byte) {
	a, err := record.ParseApproval(raw)
	signer, known := payload.Approver(s.set, a.SignerID)
	if err != nil || !known {
		s.must(false, payload.Version, "%s: approval by %q: no such signer (%v)", name, a.SignerID, err)
		return
	}
	sum := st.approvals[a.SignerID]
	s.all(payload.Version, name+": approval by "+a.SignerID,
		condition{bytes.Equal(a.Bytes(), raw), "it is not canonical"},
		condition{KeyOf(signer) == key, "it is stored under another key"},
		condition{sum.IsZero() || sum == b3.Sum(raw), "the audit record names other bytes"},
		condition{record.VerifyApproval(a, signer, payload.B3()) == nil, "the signature is invalid"})
}
