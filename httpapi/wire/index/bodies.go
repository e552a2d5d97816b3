package index

// Resolved is the body of GET /resolve/{key}.
type Resolved struct {
	Key      string `json:"key" doc:"in canonical form: a name in lower case, an id as b3:<hex>"`
	Manifest string `json:"manifest" format:"b3"`
	Source   string `json:"source" enum:"local|cache|peer|stale" doc:"stale: last known, since no peer answered"`
	Age      int64  `json:"freshness_s" doc:"seconds since the answer was read from the file or heard from a peer"`
	ETag     string `json:"etag"`
	Conflict string `json:"conflict,omitzero" format:"b3" doc:"manifest by another trusted key"`
	Record   []byte `json:"record,omitempty" doc:"signed; only if another node asks"`
}

// Providers is the body of GET /providers/{cid}.
type Providers struct {
	CID       string     `json:"cid" format:"b3"`
	Providers []Provider `json:"providers" doc:"best first"`
	Source    string     `json:"source" enum:"local|cache|peer|stale" doc:"stale: last known, since no peer answered"`
}

// Provider is a peer that serves the content.
type Provider struct {
	Peer      string   `json:"peer" doc:"libp2p id"`
	Addrs     []string `json:"addrs" doc:"multiaddrs"`
	Region    string   `json:"region,omitzero"`
	Valid     bool     `json:"signature_valid" doc:"the peer has signed the record"`
	ExpiresMS int64    `json:"expires_ms" doc:"Unix time in milliseconds"`
}

// NamePut is the body of PUT /index/names/{key}.
type NamePut struct {
	Manifest string `json:"manifest" format:"b3"`
}

// NameRow is one row of the table of names.
type NameRow struct {
	Key       string `json:"key"`
	Manifest  string `json:"manifest" format:"b3"`
	Seq       uint64 `json:"seq" doc:"grows by one with each change of the name, including removals"`
	UpdatedMS int64  `json:"updated_ms" doc:"Unix time in milliseconds"`
}

// NameList is the body of GET /index/names, in the order of the keys.
type NameList struct {
	Names   []NameRow `json:"names" doc:"may be empty although there is a next page"`
	Damaged []string  `json:"damaged,omitempty" doc:"keys of damaged rows on this page, which are not listed"`
	Next    string    `json:"next,omitzero" doc:"?after= of the next page"`
}

// Announce is the body of POST /index/providers.
type Announce struct {
	Providers []Announcement `json:"providers" doc:"at most 100"`
}

// Announcement is a record that its provider has signed, or the members of a record that this node
// signs for itself.
type Announcement struct {
	CID    string   `json:"cid,omitzero" doc:"b3:<hex> or the text of a CID"`
	Addrs  []string `json:"addrs,omitempty" doc:"1 to 16 multiaddrs under which this node serves it"`
	TTL    uint64   `json:"ttl_s,omitzero" doc:"60 to 172800 seconds; 0: a day"`
	Region string   `json:"region,omitzero"`
	Record []byte   `json:"record,omitempty" doc:"a signed record, instead of all other members"`
}

// AnnounceResults answers Announce with one result per record, in their order.
type AnnounceResults struct {
	Results []AnnounceResult `json:"results"`
}

// AnnounceResult is the outcome of one record.
type AnnounceResult struct {
	CID       string `json:"cid,omitzero"`
	Peer      string `json:"peer,omitzero"`
	Accepted  bool   `json:"accepted"`
	Reason    string `json:"reason,omitzero" doc:"why it was refused"`
	ExpiresMS int64  `json:"expires_ms,omitzero" doc:"Unix time in milliseconds"`
	Record    []byte `json:"record,omitempty" doc:"as it was signed"`
}

// Reindex is the body of POST /index/reindex.
type Reindex struct {
	Keys []string `json:"keys,omitempty" doc:"at most 1000; none: the most requested keys, up to 64"`
}

// Reindexed answers Reindex.
type Reindexed struct {
	Queued int `json:"queued"`
}

// PeerList is the body of GET /index/peers: the peers of the configuration in its order, then those
// of the registry.
type PeerList struct {
	Peers []PeerState `json:"peers"`
}

// PeerState is the state of a peer that the node asks.
type PeerState struct {
	Target       string `json:"target" doc:"host and port"`
	Node         string `json:"node,omitzero" doc:"its item in the registry"`
	Region       string `json:"region,omitzero"`
	State        string `json:"state" enum:"closed|open|half_open" doc:"of its circuit breaker"`
	RetryAfterMS int64  `json:"retry_after_ms,omitzero" doc:"until an open breaker lets a call through"`
	Asked        uint64 `json:"asked" doc:"calls since the start"`
	Failed       uint64 `json:"failed" doc:"failed calls, including those that a later peer overtook"`
	LastError    string `json:"last_error,omitzero"`
}

// NodeIdentity is the body of GET /index/identity.
type NodeIdentity struct {
	Peer string `json:"peer" doc:"libp2p id of this node"`
	Key  string `json:"key" doc:"its Ed25519 key in hex, for index.trust of other nodes"`
}

// Routing is the body of GET /routing/v1/providers/{cid}, in the form of the Delegated Routing
// standard.
type Routing struct {
	Providers []PeerRecord `json:"Providers"`
}

// PeerRecord is a record of the schema peer, with the signed record of the provider beside it.
type PeerRecord struct {
	Schema    string   `json:"Schema"`
	ID        string   `json:"ID"`
	Addrs     []string `json:"Addrs"`
	Protocols []string `json:"Protocols,omitempty"`
	Ron       []byte   `json:"ron,omitempty" doc:"the signed record, for another ronbox"`
}
