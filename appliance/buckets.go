package appliance

import (
	"ronbox/engines/ledger/tables"
	"ronbox/engines/registry"
	"ronbox/store"
)

// Declare names the buckets of every service to a store on which no node runs: a file records what was declared last, and what
// it does not record is no part of its state hash or of its checks.
func Declare(s *store.Store) {
	s.Declare(ownService, authBucket)
	s.Declare(serviceRegistry, registry.Buckets()...)
	s.Declare(serviceLedger, tables.Buckets()...)
}
