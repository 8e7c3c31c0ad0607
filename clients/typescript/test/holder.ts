// Leads the log that the first argument names, appends one record, says so, and does nothing more.

import { lead } from "../src/index.js";

const session = await lead(process.argv[2]!, { promise: 1000 });
await session.append("a", { cursor: "1" });
console.log("leads");
