// Package chase makes writes to a store overlap that answers within microseconds, for the probe
// and the conformance suite.
//
// A goroutine takes longer to start than such a store takes to answer. So writers that are
// started together write one after another, and a store that checks first and writes afterwards
// passes each race. In a chase the writers never stop. Each one writes on the newest condition
// that it knows: it creates the next key, or swaps the newest version. Hundreds of thousands of
// writes fit into a second. Now and then a writer is interrupted between check and write, or while
// it holds the store's lock, and then all others overtake it.
//
// That needs two processors or some luck. [Result] tells how many writes lost to another one: if
// none did, the chase has tested nothing.
package chase
