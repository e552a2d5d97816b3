package httpapi

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/ledger"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

func (s *Server) ledgerRoutes() []Route {
	w := s.d.Wallet
	number := func(name, doc string) openapi.Param {
		return openapi.Param{Name: name, Doc: doc, Sample: uint64(0), Min: 1, Max: maxVersion}
	}
	needed := func(name, doc string) openapi.Param {
		p := number(name, doc)
		p.Required = true
		return p
	}
	roots := walletRead("ledger/roots", "Roots of the ledger's batches, oldest first", getRoots(w), wire.Roots{})
	roots.Query = []openapi.Param{number("since", "the batch before the first"), number("limit", "rows of a page")}
	roots.Query[1].Max = ledger.MaxRoots
	proof := walletRead("tx/:txid/proof", "Proof that a record is in the ledger", getProof(w), wire.Proof{})
	proof.Query = []openapi.Param{number("at", "the batch after which the log is shown; absent: the newest")}
	proof.Problems = []int{http.StatusNotFound}
	consistency := walletRead("ledger/consistency", "Proof that the ledger only grew", getConsistency(w), wire.Consistency{})
	consistency.Query = []openapi.Param{needed("from", "the earlier batch"), needed("to", "the later batch")}
	return []Route{
		walletRead("ledger/head", "Where the ledger ends", getLedgerHead(w), wire.LedgerHead{}),
		roots, proof, consistency, s.exportRoute(),
	}
}

// exportRoute gives the ledger out. It has a scope of its own, since it shows every account.
func (s *Server) exportRoute() Route {
	lines := openapi.Answer{
		Status: http.StatusOK, Type: typeLines, Body: jsontext.Value(nil), Headers: rateHeaders(),
		Doc: "a line that says what this is, then each record, and each batch behind its last record; a line {\"problem\": …} if it ends early; with follow an empty line, to be skipped, whenever nothing was committed for 15 s (registry.sse.ping)",
	}
	return Route{
		Method: http.MethodGet, Pattern: walletPrefix + "ledger/export", Service: serviceWallet, Scope: scopeExport, Class: ClassStream,
		Endpoint: "export", Summary: "The ledger's records, to check and to keep", Answers: []openapi.Answer{lines},
		Query: []openapi.Param{
			{Name: "from_seq", Doc: "the first record, at most the one after the newest", Sample: uint64(0), Min: 1, Max: maxVersion},
			{Name: "to_seq", Doc: "the last one; absent: the newest", Sample: uint64(0), Min: 1, Max: maxVersion},
			{Name: "follow", Doc: "1 stays, and goes on with what comes", Enum: []string{"0", "1"}},
		},
		handle: s.getExport,
	}
}
