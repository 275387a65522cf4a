interface Block { type: string; text?: string }
interface Message { role: "user" | "assistant"; content: string | Block[] }
interface Note { path: string; content: string }

/** What somebody has asked in this message; nothing if it holds results of tools. */
function asked({ role, content }: Message): string {
  if (role !== "user") return ""
  if (typeof content === "string") return content
  if (content.some((block) => block.type === "tool_result")) return ""
  return content.map((block) => block.text ?? "").join(" ").trim()
}

/** Puts the notes that fit the last question in front of it. */
export async function enrichMessages({ messages, loop }: { messages: Message[]; loop: string }) {
  const at = messages.findLastIndex((message) => asked(message) !== "")
  const notes: Note[] = at < 0 ? [] : await adf.search_notes({ question: asked(messages[at]) })
  console.log(`${notes.length} notes for ${loop}`)
  if (notes.length === 0) return { messages }
  const content = "From the handbook:\n" + notes.map((note) => "- " + note.content).join("\n")
  return { messages: messages.toSpliced(at, 0, { role: "user", content }) }
}
