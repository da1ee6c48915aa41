"""The SDKs of agents, driven by a model that calls one tool with what it is given.

Each has the same two functions: `schema` is what the model is told of a tool, `ask` has the model
call it, several times at once, and returns what it is told. They are imported where they are used:
together they take seconds.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What a model was told of one call."""

    text: str
    failed: bool | None = None
    """None: the SDK has no word for it."""


Arguments = dict[str, Any]


class Sdk(ABC):
    """One SDK, with one tool."""

    refusal: Callable[[str], object]

    @abstractmethod
    def register(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        """Make *function* the tool. *timeout*: of each call."""

    @abstractmethod
    async def schema(self) -> dict[str, Any]:
        """What the model knows of the tool: name, description, parameters."""

    @abstractmethod
    async def ask(self, *calls: Arguments) -> list[Told]:
        """Call the tool, all at once."""


class Mcp(Sdk):
    """A server and a client in one process, over the protocol."""

    def __init__(self) -> None:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError

        self.refusal = ToolError
        self.server = MCPServer("bank")
        self.timeout: float | None = None

    def register(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        from mcp_types import ToolAnnotations

        self.server.tool(annotations=ToolAnnotations(idempotent_hint=True))(function)
        self.timeout = timeout

    async def schema(self) -> dict[str, Any]:
        [tool] = await self.server.list_tools()
        return tool.model_dump()

    async def ask(self, *calls: Arguments) -> list[Told]:
        from mcp import Client

        async with Client(self.server) as client:
            return await asyncio.gather(*(self._call(client, each) for each in calls))

    async def _call(self, client: Any, arguments: Arguments) -> Told:
        from mcp import MCPError

        try:
            got = await client.call_tool("charge", arguments, read_timeout_seconds=self.timeout)
        except MCPError as error:
            return Told(str(error), failed=True)
        return Told("".join(each.text for each in got.content), got.is_error)


class PydanticAi(Sdk):
    """An agent whose model is a function."""

    def __init__(self) -> None:
        from pydantic_ai import ToolFailed

        self.refusal = ToolFailed
        self.function: Any = None
        self.timeout: float | None = None

    def register(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        self.function, self.timeout = function, timeout

    def _agent(self, model: Callable[..., Any]) -> Any:
        from pydantic_ai import Agent
        from pydantic_ai.models.function import FunctionModel

        agent = Agent(FunctionModel(model))
        agent.tool_plain(timeout=self.timeout, name="charge")(self.function)
        return agent

    async def schema(self) -> dict[str, Any]:
        from pydantic_ai.messages import ModelResponse, TextPart

        seen: list[Any] = []

        def model(messages: Any, info: Any) -> ModelResponse:
            seen.extend(info.function_tools)
            return ModelResponse(parts=[TextPart("done")])

        await self._agent(model).run("look")
        return {
            "name": seen[0].name,
            "description": seen[0].description,
            "parameters": seen[0].parameters_json_schema,
        }

    async def ask(self, *calls: Arguments) -> list[Told]:
        from pydantic_ai.messages import (
            ModelResponse,
            RetryPromptPart,
            TextPart,
            ToolCallPart,
            ToolReturnPart,
        )

        told: list[Told] = []

        def model(messages: Any, info: Any) -> ModelResponse:
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart("charge", each) for each in calls])
            for part in messages[-1].parts:
                if isinstance(part, ToolReturnPart):
                    told.append(Told(part.model_response_str(), part.outcome == "failed"))
                elif isinstance(part, RetryPromptPart):
                    told.append(Told(part.model_response(), failed=True))
            return ModelResponse(parts=[TextPart("done")])

        await self._agent(model).run("charge")
        return told


class LangGraph(Sdk):
    """A graph whose node runs tools."""

    def __init__(self) -> None:
        from langchain_core.tools import ToolException

        self.refusal = ToolException
        self.tool: Any = None
        self.timeout: float | None = None

    def register(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        from langchain_core.tools import tool

        self.tool = tool(function)
        self.tool.handle_tool_error = True
        self.timeout = timeout

    async def schema(self) -> dict[str, Any]:
        from langchain_core.utils.function_calling import convert_to_openai_tool

        return convert_to_openai_tool(self.tool)

    async def ask(self, *calls: Arguments) -> list[Told]:
        from langchain_core.messages import AIMessage
        from langgraph.graph import END, START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode

        builder = StateGraph(MessagesState)
        builder.add_node("tools", ToolNode([self.tool]))
        builder.add_edge(START, "tools")
        builder.add_edge("tools", END)
        graph = builder.compile()
        graph.step_timeout = self.timeout
        wanted = [
            {"name": "charge", "args": each, "id": f"call-{number}", "type": "tool_call"}
            for number, each in enumerate(calls)
        ]
        try:
            state = await graph.ainvoke({"messages": [AIMessage("", tool_calls=wanted)]})
        except TimeoutError as error:
            return [Told(repr(error), failed=True)]
        return [Told(each.text, each.status == "error") for each in state["messages"][1:]]


class OpenAiAgents(Sdk):
    """An agent whose model is a class."""

    refusal = str

    def __init__(self) -> None:
        self.tool: Any = None

    def register(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        from agents import function_tool

        self.tool = function_tool(function, timeout=timeout)

    async def schema(self) -> dict[str, Any]:
        tool = self.tool
        return {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }

    async def ask(self, *calls: Arguments) -> list[Told]:
        from agents import Agent, Runner, set_tracing_disabled

        set_tracing_disabled(True)
        model = _openai_model(calls)
        await Runner.run(Agent("bank", model=model, tools=[self.tool]), "charge")
        return [Told(text) for text in model.told]


def _openai_model(calls: tuple[Arguments, ...]) -> Any:
    from agents import ModelResponse, Usage
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class FakeModel(Model):
        told: tuple[str, ...] = ()

        async def get_response(self, *, input: Any, **_: Any) -> ModelResponse:  # type: ignore[override]
            if isinstance(input, str) or len(input) == 1:
                output: list[Any] = [
                    ResponseFunctionToolCall(
                        arguments=json.dumps(each), call_id=f"call-{number}", name="charge",
                        type="function_call",
                    )
                    for number, each in enumerate(calls)
                ]  # fmt: skip
            else:
                self.told = tuple(
                    str(item["output"]) for item in input
                    if isinstance(item, dict) and item.get("type") == "function_call_output"
                )  # fmt: skip
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                output = [
                    ResponseOutputMessage(
                        id="m", content=[text], role="assistant", status="completed", type="message"
                    )
                ]
            return ModelResponse(output, Usage(), None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("the runs of these tests are not streamed")

    return FakeModel()


SDKS: dict[str, type[Sdk]] = {
    "mcp": Mcp,
    "pydantic-ai": PydanticAi,
    "langgraph": LangGraph,
    "openai-agents": OpenAiAgents,
}
