// What a tap asks of the server, the same on every page.

/** The verb and its facts; null: nothing reaches the bot, or the person is asked something first. */
export function asked(action) {
  const { type, text, data } = action;
  switch (type) {
    case "message": return ["say", { text }];
    case "postback": return ["tap", { data, displayText: action.displayText ?? text }];
    case "camera": case "cameraRoll": return ["image", {}];
    case "richmenuswitch": return ["switch", { alias: action.richMenuAliasId, data }];
    case "played": return ["played", { trackingId: action.trackingId }];
    default: return null;
  }
}
