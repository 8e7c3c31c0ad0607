// Package sim makes whole histories of a log and checks them.
//
// The real packages run unchanged in a testing/synctest bubble, on a simulated store and
// with simulated clocks. Every request to the store waits until the scheduler decides
// what happens to it. So does every timer and every step of a client. The scheduler does
// one thing at a time. It lets a request take effect, answers it, loses its reply, or lets
// it land much later or twice. It fires a timer, crashes or pauses a node, or bends the
// node's clock. Then it waits until nothing moves any more. So a history is a list of acts,
// and the same acts make the same history.
//
// [Run] draws the acts from a seed. [Shrink] repeats them without some of them, to find a
// shorter history that breaks the same promise. [Explore] goes through all schedules of a
// small scenario.
//
// Random values in the code under test (nonces, UUIDs) become numbers that rise, because
// code that reads several objects reads them in the order of their names. The names by
// which the scheduler knows requests do not show them. Jitter is replaced, because it
// decides when timers fire.
//
// The checks use what the clients were told and what is in the store. A pin that holds in
// the store protects its objects, whatever its holder believes. At the end all pins are
// removed and all requests have landed: then exactly those objects are left that the
// newest manifest names.
package sim
