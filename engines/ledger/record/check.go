package record

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"ronbox/engines"
)

// ErrIdem is returned for a text that is not an idempotency key.
var ErrIdem = errors.New("not an idempotency key: must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -")

// ErrMemo is returned for a text that is not a memo.
var ErrMemo = fmt.Errorf("not a memo: must be UTF-8 of at most %d bytes", MaxMemo)

// ErrReference is returned for a text that is not a reference.
var ErrReference = fmt.Errorf("not a reference: must be 1 to %d bytes of printable UTF-8", MaxReference)

// CheckReference returns ErrReference if s is not a valid reference.
func CheckReference(s string) error {
	if s == "" || len(s) > MaxReference || !utf8.ValidString(s) {
		return ErrReference
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return ErrReference
		}
	}
	return nil
}

// CheckIdem returns ErrIdem if s is not a valid idempotency key.
func CheckIdem(s string) error {
	if s == "" || len(s) > MaxIdem {
		return ErrIdem
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= ':', c == '.', c == '_', c == '-':
		default:
			return ErrIdem
		}
	}
	return nil
}

// CheckMemo returns ErrMemo if s is not a valid memo. "" is valid.
func CheckMemo(s string) error {
	if len(s) > MaxMemo || !utf8.ValidString(s) {
		return ErrMemo
	}
	return nil
}

// The faults of a record, each of which is a *FormatError's reason.
var (
	errOp      = errors.New("unknown op")
	errFlags   = errors.New("unknown flags")
	errNumber  = errors.New("seq and batch must be from 1 on, times not negative")
	errDedupe  = errors.New("a dedupe of no kind, or of an unknown one")
	errName    = errors.New("a name where none belongs, or none where one does")
	errResults = errors.New("results where none belong, of no known kind, or in the wrong part")
	errImages  = errors.New("too many images, two of one account, or one of another seq or asset than the record's")
)

// check returns an error if a value of r is invalid. A valid record has exactly one byte form.
func (r *Record) check() error {
	switch {
	case !r.Op.known():
		return errOp
	case r.Flags&^allRecordFlags != 0, (r.Set|r.Clear)&^allFlags != 0:
		return errFlags
	case r.Named && r.Op != OpBatch && (r.Op != OpFlags || r.Set|r.Clear == 0):
		return errVersion
	case r.Seq == 0, r.Batch == 0, r.At < 0, r.Expires < 0:
		return errNumber
	case r.Dedupe.Kind > DedupeOnce, r.Dedupe.Kind == DedupeNone && r.Dedupe != Dedupe{}:
		return errDedupe
	}
	if err := r.checkTexts(); err != nil {
		return err
	}
	if err := r.checkResults(); err != nil {
		return err
	}
	return r.checkImages()
}

func (r *Record) checkTexts() error {
	if r.Idem != "" {
		if err := CheckIdem(r.Idem); err != nil {
			return err
		}
	}
	if r.Memo != "" {
		if err := CheckMemo(r.Memo); err != nil {
			return err
		}
	}
	switch r.Op {
	case OpOpen:
		return engines.CheckAccount(r.Name)
	case OpAsset:
		return engines.CheckAsset(r.Name)
	}
	if r.Name != "" {
		return errName
	}
	return nil
}

func (r *Record) checkResults() error {
	if r.Op != OpBatch {
		if len(r.Results) != 0 || r.Part != 0 || r.Parts != 0 {
			return errResults
		}
		return nil
	}
	last := r.Part+1 == r.Parts
	if r.Part >= r.Parts || len(r.Results) == 0 || len(r.Results) > MaxResults ||
		!last && len(r.Results) != MaxResults {
		return errResults
	}
	for _, b := range r.Results {
		if !Result(b).Known() {
			return errResults
		}
	}
	return nil
}

func (r *Record) checkImages() error {
	if len(r.Images) > MaxImages {
		return errImages
	}
	for i := range r.Images {
		m := &r.Images[i]
		if m.Account == 0 || m.Asset == 0 || m.Asset != r.Asset || m.State.LastSeq != r.Seq || m.Prev >= r.Seq {
			return errImages
		}
		for k := range i {
			if r.Images[k].Account == m.Account {
				return errImages
			}
		}
	}
	return nil
}
