package tokens

import (
	"fmt"
	"slices"
	"strings"

	"ronbox/store"
)

// Check reads every row of the bucket. It returns an error for rows that Load could not read, or
// that are inconsistent.
func Check(r store.Reader) error {
	if _, err := readRoot(r); err != nil {
		return err
	}
	if err := checkKids(readKids(r)); err != nil {
		return err
	}
	live, err := checkExpiries(r)
	if err != nil {
		return err
	}
	for id, want := range live {
		if got := total(r, id); got != want {
			return fmt.Errorf("%s is %d, but there are %d", id, got, want)
		}
	}
	for raw := range r.Range(Bucket, nil, nil) {
		tabled := func(prefix string) bool { return strings.HasPrefix(string(raw), prefix) }
		switch key := string(raw); {
		case key == rootKey, key == string(totalTokens), key == string(totalRevocations):
		case slices.ContainsFunc([]string{kidPrefix, tokenPrefix, revPrefix, expiryPrefix}, tabled):
		default:
			return fmt.Errorf("row %q is of no table", key)
		}
	}
	return nil
}

func checkKids(all []tokenKey) error {
	actives := 0
	for _, k := range all {
		switch k.State {
		case kidActive:
			actives++
		case kidVerify, kidRetired:
		default:
			return fmt.Errorf("key %s is %q", k.id.kid(), k.State)
		}
	}
	if actives > 1 || actives == 0 && len(all) > 0 {
		return fmt.Errorf("%d of %d keys mint", actives, len(all))
	}
	return nil
}

// checkExpiries counts tokens and revocations. Each has a row in the order of expiry, and there are
// no other such rows.
func checkExpiries(r store.Reader) (live map[totalID]uint64, err error) {
	live = map[totalID]uint64{totalTokens: 0, totalRevocations: 0}
	due := func(unix int64, key string) {
		if err == nil && !expiries.Has(r, expires(unix, key)) {
			err = fmt.Errorf("row %q has no expiry", key)
		}
	}
	for id, row := range tokens.Range(r, tokenPrefix, tokenPrefix+after) {
		live[totalTokens]++
		due(row.ExpiresAt, string(id))
	}
	for id, row := range revocations.Range(r, revPrefix, revPrefix+after) {
		live[totalRevocations]++
		due(seconds(row.Until), string(id))
	}
	var ends uint64
	for range expiries.Range(r, expiryPrefix, expiryPrefix+after) {
		ends++
	}
	if want := live[totalTokens] + live[totalRevocations]; err == nil && ends != want {
		err = fmt.Errorf("%d rows expire, but there are %d tokens and revocations", ends, want)
	}
	return live, err
}
