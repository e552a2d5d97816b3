package tokens

import (
	"context"
	"strings"
	"time"

	"ronbox/store"
)

// longLived is the time to live from which a token counts as long-lived. Shorter tokens are renewed
// routinely.
const longLived = 7 * 24 * time.Hour

// Expiry returns when the next long-lived token expires and when the active key is to be rotated. A
// time is zero without such a token or key. Expiry reads at most a thousand tokens and then returns
// the expiry of the last.
func (i *Issuer) Expiry(ctx context.Context) (token, rootKey time.Time, err error) {
	err = i.store.View(ctx, func(r store.Reader) error {
		keys := readKids(r)
		if at := active(keys); at >= 0 {
			rootKey = time.Unix(0, keys[at].CreatedAt).Add(i.config().Rotate.D())
		}
		rows := 0
		for id := range expiries.Range(r, expires(i.wall().Unix(), ""), expiryPrefix+after) {
			key := id.row()
			if !strings.HasPrefix(key, tokenPrefix) {
				continue
			}
			row, ok := tokens.Get(r, tokenID(key))
			if !ok {
				continue
			}
			lives := time.Duration(row.ExpiresAt-row.IssuedAt) * time.Second
			revoked := revocations.Has(r, newRevID(revokeTID, strings.TrimPrefix(key, tokenPrefix)))
			if rows++; lives > longLived && !revoked || rows == sweepRows {
				token = time.Unix(row.ExpiresAt, 0)
				return nil
			}
		}
		return nil
	})
	return token, rootKey, err
}
