package assign

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// sample is an assignment that has everything.
func sample() *Assignment {
	g := newGroup(nil, 6)
	g.a = New(fence.ID{1, 2, 3}, 6, 1<<40)
	g.cleared = func(int, Entry) bool { return false }
	g.members = []MemberNews{{Name: fence.ID{0xaa}, Weight: 1}, {Name: fence.ID{0xbb}, Weight: MaxWeight}, {Name: fence.ID{0xcc}}, {Name: fence.ID{0xdd}, Weight: 1}}
	for _, state := range []State{Live, Leaving} {
		g.members[1].State = state
		next, err := Next(g.a, g.news())
		if err != nil {
			panic(err)
		}
		g.a = next
	}
	g.a.owners[5], g.a.tenures[5] = Nobody, 0
	return g.a
}

func TestGolden(t *testing.T) {
	a := sample()
	want := fixture.Golden(t, "assignment", a.Encode())
	if got := a.Encode(); !bytes.Equal(got, want) {
		t.Errorf("encoded\n%x\nthe file has\n%x", got, want)
	}
	got, err := Decode("assign", want)
	if err != nil || !equal(got, a) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, a)
	}
	if p := got.Pending(0); len(p) != 1 || got.Members()[p[0].Member] != (Member{Name: fence.ID{0xbb}, Weight: MaxWeight, Leaving: true}) {
		t.Errorf("the sample has lost what it should show: %+v, %v", got.Members(), p)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	a, other := steady(3000, 300, 10, rng), steady(50_000, 300, 10, rng)
	want := a.Encode()
	other.Encode()
	got, err := Decode("assign", want)
	if err != nil || !bytes.Equal(got.Encode(), want) {
		t.Errorf("encoded again, it differs: %v", err)
	}
}

// object is an object with a given payload.
func object(payload []byte, version byte) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	b[4] = version
	binary.LittleEndian.PutUint32(b[8:], uint32(len(payload)))
	return sum(newEncoder().EncodeAll(payload, b))
}

func sum(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[12:], checksum(b))
	return b
}

func numbers(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func TestDecodeRefuses(t *testing.T) {
	ids := make([]byte, 32)
	// From number on: number, base, members, partitions, entries.
	one := slices.Concat(make([]byte, 15), []byte{1})
	payload := func(parts ...[]byte) []byte { return slices.Concat(append([][]byte{ids}, parts...)...) }
	good := payload(numbers(5, 0, 1, 2, 1), one, []byte{1, 0}, []byte{1, 0}, numbers(1, 3), []byte{0, 1}, numbers(1, 0))
	if a, err := Decode("k", object(good, version)); err != nil || a.Tenure(0) != 2 || a.Owner(1) != Nobody || a.Pending(1)[0] != (Entry{0, 5}) {
		t.Fatalf("%+v, %v", a, err)
	}
	for name, c := range map[string]struct {
		body []byte
		says string
	}{
		"nothing":              {nil, "does not begin"},
		"another magic":        {append([]byte("FNCP"), make([]byte, 40)...), "does not begin"},
		"too long":             {make([]byte, MaxBytes+1), "at most"},
		"no payload":           {object(nil, version), "ends too early"},
		"no frame":             {sum(append(slices.Clone(object(good, version)[:headerSize]), "no frame"...)), "does not unpack"},
		"rest":                 {object(append(slices.Clone(good), 0), version), "1 bytes follow"},
		"too short":            {object(good[:len(good)-1], version), "ends too early"},
		"number 0":             {object(payload(numbers(0, 0, 0, 0, 0), numbers(0)), version), "number 0"},
		"number too high":      {object(payload(numbers(MaxNumber+1, 0, 0, 0, 0)), version), "number 70368744177664; at most"},
		"base too high":        {object(payload(numbers(1, MaxBase+1, 0, 0, 0)), version), "base 4611686018427387905; at most"},
		"members":              {object(payload(numbers(1, 0, MaxMembers+1, 0, 0)), version), "members: 10001; at most"},
		"partitions":           {object(payload(numbers(1, 0, 0, MaxPartitions+1, 0)), version), "partitions: 100001; at most"},
		"entries":              {object(payload(numbers(1, 0, 0, 0, MaxEntries+1)), version), "pending entries: 1048577; at most"},
		"a long number":        {object(payload([]byte{0x81, 0}), version), "longer than it need be"},
		"an endless number":    {object(payload(bytes.Repeat([]byte{0xff}, 20)), version), "too large"},
		"a member twice":       {object(payload(numbers(1, 0, 2, 0, 0), one, one, []byte{1, 1, 0, 0}, numbers(0)), version), "twice"},
		"weight":               {object(payload(numbers(1, 0, 1, 0, 0), one, numbers(MaxWeight+1), []byte{0}, numbers(0)), version), "weight 1000000001"},
		"flags":                {object(payload(numbers(1, 0, 1, 0, 0), one, []byte{1, 2}, numbers(0)), version), "flags 00000010"},
		"owner":                {object(payload(numbers(1, 0, 1, 1, 0), one, []byte{1, 0}, []byte{2}, numbers(0)), version), "owner 2 of 2"},
		"tenure 0":             {object(payload(numbers(1, 0, 1, 1, 0), one, []byte{1, 0}, []byte{1}, numbers(1, 1)), version), "fall to 0"},
		"tenure before 0":      {object(payload(numbers(1, 0, 1, 1, 0), one, []byte{1, 0}, []byte{1}, numbers(1, 2)), version), "a distance of 2; at most"},
		"numbers do not fall":  {object(payload(numbers(3, 0, 1, 2, 0), one, []byte{1, 0}, []byte{1, 1}, numbers(2, 0, 0), []byte{0, 1}), version), "do not fall"},
		"too many numbers":     {object(payload(numbers(3, 0, 1, 1, 0), one, []byte{1, 0}, []byte{1}, numbers(2, 0, 1)), version), "numbers that differ: 2"},
		"no such number":       {object(payload(numbers(3, 0, 1, 2, 0), one, []byte{1, 0}, []byte{1, 1}, numbers(2, 0, 1), []byte{0, 2}), version), "number 2 of 2"},
		"owned without number": {object(payload(numbers(3, 0, 1, 1, 0), one, []byte{1, 0}, []byte{1}, numbers(0)), version), "number 0 of 0"},
		"too few entries":      {object(payload(numbers(3, 0, 1, 1, 1), one, []byte{1, 0}, []byte{0}, numbers(0), []byte{0}), version), "belong to no partition"},
		"too many entries":     {object(payload(numbers(3, 0, 1, 1, 1), one, []byte{1, 0}, []byte{0}, numbers(0), []byte{2}), version), "pending entries of a partition: 2"},
		"an entry of nobody":   {object(payload(numbers(3, 0, 0, 1, 1), numbers(0), []byte{1}, numbers(1, 0)), version), "member 0 of 0"},
		"an entry twice":       {object(payload(numbers(3, 0, 1, 1, 2), one, []byte{1, 0}, []byte{0}, numbers(0), []byte{2}, numbers(1, 0)), version), "not in order"},
	} {
		a, err := Decode("the/key", c.body)
		if a != nil {
			t.Errorf("%s: decoded %+v", name, a)
		}
		fixture.WantErr(t, err, fence.ErrCorrupt, c.says)
		if err != nil && !strings.HasPrefix(err.Error(), "the/key: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Decode("the/key", object(good, version+1))
	fixture.WantErr(t, err, fence.ErrFormat, "upgrade this program")
}

// Every byte counts.
func TestDecodeFindsDamage(t *testing.T) {
	body := sample().Encode()
	for i := range body {
		bad := slices.Clone(body)
		bad[i] ^= 0x10
		if _, err := Decode("k", bad); err == nil {
			t.Errorf("damage of byte %d goes unnoticed", i)
		}
		if _, err := Decode("k", body[:i]); err == nil {
			t.Errorf("%d bytes of %d are enough", i, len(body))
		}
	}
}

// An object of a few bytes claims as much as it can.
//
// guard:assign-size. Without this check: somebody puts an object of a hundred bytes under the key of an
// assignment; it states a payload of 4 GiB; each member that reads it allocates that much.
func TestDecodeAllocatesLittle(t *testing.T) {
	claim := make([]byte, headerSize)
	copy(claim, magic)
	claim[4] = version
	binary.LittleEndian.PutUint32(claim[8:], 1<<30)
	zeros := object(slices.Concat(make([]byte, 32), numbers(1, 0, MaxMembers, MaxPartitions, MaxEntries), make([]byte, maxRaw-64)), version)
	for name, c := range map[string]struct {
		body []byte
		most int64
	}{
		"a gigabyte":         {sum(claim), 1 << 20},
		"zeros":              {zeros, 3 * maxRaw},
		"more than it says":  {sum(newEncoder().EncodeAll(make([]byte, 100<<20), object(nil, version)[:headerSize:headerSize])), 1 << 20},
		"all claims, no end": {object(slices.Concat(make([]byte, 32), numbers(1, 0, MaxMembers, MaxPartitions, MaxEntries)), version), 4 << 20},
	} {
		got := test.Allocated(func() {
			if a, err := Decode("k", c.body); err == nil {
				t.Errorf("%s: decoded %+v", name, a.Members())
			}
		})
		if got > c.most {
			t.Errorf("%s: %d bytes become %d", name, len(c.body), got)
		}
	}
}

// FuzzPayload decodes payloads, so that the checksum keeps nothing away.
func FuzzPayload(f *testing.F) {
	f.Add(slices.Concat(sample().columns()...))
	f.Add(slices.Concat(steady(20, 3, 2, rand.New(rand.NewPCG(1, 1))).columns()...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var a *Assignment
		var err error
		body := object(payload, version) // 100,000 partitions without members take no bytes
		test.Affords(t, len(payload), 64, 4<<20, func() { a, err = Decode("k", body) })
		if err != nil {
			return
		}
		again, err := Decode("k", a.Encode())
		if err != nil || !equal(a, again) {
			t.Errorf("%+v\nreturns as\n%+v, %v", a, again, err)
		}
		if next, err := Next(a, &News{Members: []MemberNews{{Name: name(1), Weight: 1}}}); err == nil && next != nil {
			if got, err := Decode("k", next.Encode()); err != nil || !equal(got, next) {
				t.Errorf("the next one, %+v, returns as %+v, %v", next, got, err)
			}
		}
	})
}

// FuzzDecode decodes objects with the right checksum.
func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) >= headerSize {
			copy(body, magic)
			sum(body)
		}
		var a *Assignment
		var err error
		test.Affords(t, len(body), 64<<10, 1<<20, func() { a, err = Decode("k", body) })
		if (a == nil) != (err != nil) {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func ExampleDecode() {
	a, err := Decode("assign/7", []byte("no assignment"))
	fmt.Println(a, err)
	// Output: <nil> assign/7: fence: corrupt object: it does not begin as an assignment does
}
